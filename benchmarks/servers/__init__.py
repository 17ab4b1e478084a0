"""The same models in each server: `linear`, FP32 [-1,4] to FP32 [-1,3], and `echo`, FP32 [-1] to itself.

`sums`, FP32 [-1,10] to FP32 [-1], exists only for MLServer and this service.
"""

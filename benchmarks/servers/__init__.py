"""The same two models in each server: `linear`, FP32 [-1,4] to FP32 [-1,3], and `echo`, FP32 [-1] to itself."""

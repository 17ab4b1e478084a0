"""The models in each server: `linear` maps FP32 [-1,4] to FP32 [-1,3], and `echo` returns its input, FP32 [-1].

`frame` takes a DataFrame of 10 columns, FP64, INT64 and BYTES [-1,1], and returns FP64 [-1].
`sums` maps FP32 [-1,10] to FP32 [-1]. Only MLServer and this service have it.
"""

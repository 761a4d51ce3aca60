"""Runs in the format of ONNX, for devices without PyTorch."""

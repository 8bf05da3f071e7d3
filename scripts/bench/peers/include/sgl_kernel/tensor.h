// Stand-in for sglang's tensor views and matchers, which need tvm-ffi: shapes are taken over, nothing is verified.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tvm::ffi {

struct TensorView {
  void* data;
  std::vector<int64_t> shape;
  cudaStream_t stream;
  void* data_ptr() const { return data; }
};

}  // namespace tvm::ffi

namespace host {

enum DeviceType { kDLCUDA };

struct SymbolicSize {
  int64_t value = 0;
  explicit SymbolicSize(const char*) {}
  int64_t unwrap() const { return value; }
};

struct SymbolicDevice {
  cudaStream_t stream = nullptr;
  template <DeviceType>
  void set_options() {}
  cudaStream_t unwrap() const { return stream; }
};

struct TensorMatcher {
  std::vector<std::reference_wrapper<SymbolicSize>> sizes;
  SymbolicDevice* device = nullptr;
  TensorMatcher(std::initializer_list<std::reference_wrapper<SymbolicSize>> sizes) : sizes(sizes) {}

  template <typename T>
  TensorMatcher& with_dtype() { return *this; }
  TensorMatcher& with_device(SymbolicDevice& d) { device = &d; return *this; }
  void verify(const tvm::ffi::TensorView& tensor) {
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i].get().value = tensor.shape[i];
    device->stream = tensor.stream;
  }
};

}  // namespace host

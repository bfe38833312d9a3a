// Failures of CUDA, cuDNN and cuBLAS as Errors, and their handles with owners.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ir/result.h"

namespace superneurons {

/// Nothing if the call succeeded; otherwise ErrorCode::device naming the function called (`call`
/// is its source text, cut at the parenthesis).
inline std::optional<Error> device_error(std::string_view call, std::string reason) {
  std::string message(call.substr(0, call.find('(')));
  message += ": ";
  message += reason;
  return Error{.code = ErrorCode::device, .message = std::move(message)};
}
inline std::optional<Error> failure(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return {};
  (void)cudaGetLastError();  // errors that do not stick must not show up in a later call
  return device_error(call, cudaGetErrorString(status));
}
inline std::optional<Error> failure(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return device_error(call, cudnnGetErrorString(status));
}
inline std::optional<Error> failure(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return device_error(call, cublasGetStatusString(status));
}

/// Returns the Error of a CUDA, cuDNN or cuBLAS call that fails from the enclosing function.
#define SUPERNEURONS_TRY(call) \
  if (auto failed_ = ::superneurons::failure((call), #call)) return std::move(*failed_)

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    (void)destroy(handle);
  }
};
/// Owner of one library handle (all of them are pointers).
template <class H, auto destroy>
using Owner = std::unique_ptr<std::remove_pointer_t<H>, Destroy<destroy>>;

using DeviceMemory = std::unique_ptr<std::byte, Destroy<&cudaFree>>;
using PinnedMemory = std::unique_ptr<std::byte, Destroy<&cudaFreeHost>>;
using StreamOwner = Owner<cudaStream_t, &cudaStreamDestroy>;
using EventOwner = Owner<cudaEvent_t, &cudaEventDestroy>;
using CudnnOwner = Owner<cudnnHandle_t, &cudnnDestroy>;
using CublasOwner = Owner<cublasHandle_t, &cublasDestroy>;
using TensorOwner = Owner<cudnnTensorDescriptor_t, &cudnnDestroyTensorDescriptor>;
using FilterOwner = Owner<cudnnFilterDescriptor_t, &cudnnDestroyFilterDescriptor>;
using ConvolutionOwner = Owner<cudnnConvolutionDescriptor_t, &cudnnDestroyConvolutionDescriptor>;

inline Result<StreamOwner> make_stream() {
  cudaStream_t stream = nullptr;
  SUPERNEURONS_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return StreamOwner(stream);
}
inline Result<EventOwner> make_event(bool timed) {
  cudaEvent_t event = nullptr;
  SUPERNEURONS_TRY(
      cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return EventOwner(event);
}
/// A plain cudaMalloc; empty for 0 bytes.
inline Result<DeviceMemory> make_device_memory(std::size_t bytes) {
  void* at = nullptr;
  if (bytes > 0) SUPERNEURONS_TRY(cudaMalloc(&at, bytes));
  return DeviceMemory(static_cast<std::byte*>(at));
}

}  // namespace superneurons

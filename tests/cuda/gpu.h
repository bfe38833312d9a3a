// Fixture of tests that need a GPU: skips, saying why, where there is none.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

namespace superneurons {

/// "" if there is a GPU, else why not.
inline std::string missing_gpu() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return std::string("no GPU: ") + cudaGetErrorString(status);
  }
  return count > 0 ? "" : "no GPU";
}

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
};

}  // namespace superneurons

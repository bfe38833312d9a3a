// Calibration: measures this machine into a DeviceProfile (`superneurons calibrate`).
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "ir/device_profile.h"
#include "ir/result.h"

namespace superneurons {

struct CalibrateOptions {
  std::string name;                                  // of the profile, e.g. "h200"
  std::string origin;                                // command line and date
  std::function<void(const std::string&)> progress;  // one line per stage; may be empty
  const std::atomic<bool>* stop = nullptr;           // looked at between stages: Error cancelled
};

/// Tells of the next stage, unless stopped.
Status begin_stage(const CalibrateOptions& options, const std::string& name);

/// Of the host backend: memory copies between the arena and the host pool, hand-over to a stream.
Result<DeviceProfile> calibrate_host(const CalibrateOptions& options);

#ifdef SUPERNEURONS_CUDA
/// Of the first GPU: transfer curves each way and together, pinning, allocation, event, launch and
/// issue cost, gaps between kernels, slowdown of kernels during copies, arithmetic and memory
/// rates.
Result<DeviceProfile> calibrate_cuda(const CalibrateOptions& options);
/// "NVIDIA H200, driver 13.0, runtime 13.0, cuDNN 9.19.0, cuBLAS 13.1.0, CUPTI API 130001".
std::string cuda_versions();
#endif

}  // namespace superneurons

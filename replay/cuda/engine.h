// Engines of cuDNN's graph interface for convolutions: more than its named algorithms, and each
// with knobs. A choice names one by number, so that another process can build it again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/cuda/check.h"
#include "replay/cuda/convolution_shape.h"

namespace superneurons {

using BackendOwner = Owner<cudnnBackendDescriptor_t, &cudnnBackendDestroyDescriptor>;

/// An engine by cuDNN's global index, and its knobs as (type, value). Numbers mean the same within
/// a version of cuDNN and a device.
struct EngineConfig {
  std::int64_t engine = 0;
  std::vector<std::pair<int, std::int64_t>> knobs;  // in the order of their types
};
/// "engine:23:2=1,14=3"; "engine:23" without knobs.
std::string engine_name(const EngineConfig& config);
bool is_engine_name(std::string_view name);
Result<EngineConfig> parse_engine(std::string_view name);

/// One convolution bound to an engine, ready to run.
class EnginePlan {
 public:
  /// Error device where this cuDNN has no such engine or it does not support the convolution.
  static Result<EnginePlan> make(cudnnHandle_t cudnn, const ConvolutionShape& shape,
                                 Direction direction, const EngineConfig& config);
  Bytes workspace() const { return workspace_; }
  /// Operands as in Convolution::run; their addresses are multiples of 16.
  Status run(cudnnHandle_t cudnn, const void* first, const void* second, void* out,
             void* workspace) const;

 private:
  std::vector<BackendOwner> parts_;  // what plan_ was made of
  BackendOwner plan_;
  Bytes workspace_{};
  Direction direction_ = Direction::forward;
};

struct EngineOffer {
  EngineConfig config;
  Bytes workspace{};
};
/// At most `most` engines that cuDNN's heuristics recommend, best first: deterministic, within
/// `limit` of workspace, without tensor cores unless `tf32`. Empty where there is none.
std::vector<EngineOffer> engine_offers(cudnnHandle_t cudnn, const ConvolutionShape& shape,
                                       Direction direction, bool tf32, Bytes limit,
                                       std::size_t most);

}  // namespace superneurons

// Pooling, local response normalisation and batch normalisation ops.
#include "replay/cuda/channels.h"
#include "replay/cuda/native.h"
#include "replay/cuda/spatial.h"

namespace superneurons {
namespace {

struct Pool {
  PoolShape shape;
  std::int64_t x = 0, y = 0;  // elements
};

Result<Pool> pool_of(const Op& op) {
  OpAttributes get(op);
  Pool pool;
  PoolShape& s = pool.shape;
  const int n = get.count("n"), c = get.count("c");
  s.planes = capped_product({n, c});
  s.h = get.count("h");
  s.w = get.count("w");
  s.window = get.count("window");
  s.stride = get.count("stride");
  s.pad = get.count("pad", 0);
  s.oh = get.count("oh");
  s.ow = get.count("ow");
  if (get.fault()) return *get.fault();
  pool.x = capped_product({n, c, s.h, s.w});
  pool.y = capped_product({n, c, s.oh, s.ow});
  const auto starts_inside = [&](std::int64_t last, std::int64_t size) {
    return s.pad < s.window && last * s.stride - s.pad < size;  // no window of padding alone
  };
  if (pool.x < kTooMany && pool.y < kTooMany && capped_product({s.h, s.w}) < (1 << 30) &&
      capped_product({s.oh, s.ow}) < (1 << 30) && starts_inside(s.oh - 1, s.h) &&
      starts_inside(s.ow - 1, s.w))
    return pool;
  return Error{.code = ErrorCode::bad_input, .message = "windows that do not fit the image"};
}

template <auto launch>
Result<Runner> make_pool(const Making& making) {
  const auto pool = pool_of(making.op());
  if (!pool) return pool.error();
  if (Status good = expect(making, {{pool->x}}, {{pool->y}}); !good) return good.error();
  return Runner(
      [&libraries = making.libraries, shape = pool->shape](const KernelCall& call) -> Status {
        SUPERNEURONS_TRY(launch(input(call, 0), output(call, 0), shape, libraries.stream));
        return Ok{};
      });
}

Result<Runner> make_max_pool_backward(const Making& making) {
  const auto pool = pool_of(making.op());
  if (!pool) return pool.error();
  if (Status good = expect(making, {{pool->x}, {pool->y}, {pool->y}}, {{pool->x}}); !good)
    return good.error();
  if (!max_pool_backward_fits(pool->shape))
    return Error{.code = ErrorCode::bad_input, .message = "rows too wide to pool backward"};
  return Runner(
      [&libraries = making.libraries, shape = pool->shape](const KernelCall& call) -> Status {
        SUPERNEURONS_TRY(launch_max_pool_backward(input(call, 0), input(call, 2), output(call, 0),
                                                  shape, libraries.stream));
        return Ok{};
      });
}

Result<Runner> make_average_pool_backward(const Making& making) {
  const auto pool = pool_of(making.op());
  if (!pool) return pool.error();
  if (Status good = expect(making, {{pool->y}}, {{pool->x}}); !good) return good.error();
  return Runner(
      [&libraries = making.libraries, shape = pool->shape](const KernelCall& call) -> Status {
        SUPERNEURONS_TRY(
            launch_average_pool_backward(input(call, 0), output(call, 0), shape, libraries.stream));
        return Ok{};
      });
}

struct Lrn {
  LrnShape shape;
  std::int64_t count = 0;
};
Result<Lrn> lrn_of(const Op& op) {
  OpAttributes get(op);
  Lrn lrn;
  const int n = get.count("n"), h = get.count("h"), w = get.count("w");
  lrn.shape.n = n;
  lrn.shape.c = get.count("c");
  lrn.shape.hw = capped_product({h, w});
  lrn.shape.size = get.count("size");
  lrn.shape.alpha = static_cast<float>(get.number("alpha"));
  lrn.shape.beta = static_cast<float>(get.number("beta"));
  lrn.shape.k = static_cast<float>(get.number("k"));
  if (get.fault()) return *get.fault();
  lrn.count = capped_product({n, lrn.shape.c, h, w});
  if (lrn.count < kTooMany && lrn_size_supported(lrn.shape.size)) return lrn;
  return Error{.code = ErrorCode::bad_input, .message = "LRN takes an odd size from 3 to 9"};
}

Result<Runner> make_lrn(const Making& making) {
  const auto lrn = lrn_of(making.op());
  if (!lrn) return lrn.error();
  if (Status good = expect(making, {{lrn->count}}, {{lrn->count}}); !good) return good.error();
  return Runner(
      [&libraries = making.libraries, shape = lrn->shape](const KernelCall& call) -> Status {
        SUPERNEURONS_TRY(launch_lrn(input(call, 0), output(call, 0), shape, libraries.stream));
        return Ok{};
      });
}

Result<Runner> make_lrn_backward(const Making& making) {
  const auto lrn = lrn_of(making.op());
  if (!lrn) return lrn.error();
  const Expected image{lrn->count};
  if (Status good = expect(making, {image, image, image}, {image}); !good) return good.error();
  return Runner(
      [&libraries = making.libraries, shape = lrn->shape](const KernelCall& call) -> Status {
        SUPERNEURONS_TRY(launch_lrn_backward(input(call, 0), input(call, 2), output(call, 0), shape,
                                             libraries.stream));
        return Ok{};
      });
}

struct BatchNorm {
  BatchNormShape shape;
  Expected image, channel;
};
Result<BatchNorm> batch_norm_of(const Making& making) {
  OpAttributes get(making.op());
  const int n = get.count("n"), c = get.count("c"), h = get.count("h"), w = get.count("w");
  const auto epsilon = static_cast<float>(get.number("epsilon"));
  const auto momentum = static_cast<float>(get.number("momentum"));
  if (get.fault()) return *get.fault();
  const std::int64_t hw = capped_product({h, w});
  if (capped_product({n, c, hw}) == kTooMany)
    return Error{.code = ErrorCode::bad_input, .message = "an image of 2^40 elements or more"};
  if (capped_product({n, hw}) < kLeastBatchNormValues)
    return Error{.code = ErrorCode::bad_input, .message = "normalises fewer than 4 values"};
  return BatchNorm{{n, c, hw, epsilon, momentum}, {capped_product({n, c, hw})}, {c}};
}

/// The kernels keep partial sums where the result will be.
Status not_in_place(const Op& op, std::size_t images) {
  for (std::size_t i = 0; i < images; ++i)
    if (op.reads[i].tensor == op.writes[0].tensor)
      return Error{.code = ErrorCode::bad_input, .message = "batch norm in place"};
  return Ok{};
}

Result<Runner> make_batch_norm(const Making& making) {
  const auto norm = batch_norm_of(making);
  if (!norm) return norm.error();
  const Expected image = norm->image, channel = norm->channel;
  if (Status good = expect(making, {image, channel, channel, channel, channel},
                           {image, channel, channel, channel, channel});
      !good)
    return good.error();
  if (Status good = not_in_place(making.op(), 1); !good) return good.error();
  return Runner([&libraries = making.libraries,
                 shape = norm->shape](const KernelCall& call) -> Status {
    // A rerun has null running statistics.
    SUPERNEURONS_TRY(launch_batch_norm(input(call, 0), input(call, 1), input(call, 2),
                                       output(call, 0), output(call, 1), output(call, 2),
                                       output(call, 3), output(call, 4), shape, libraries.stream));
    return Ok{};
  });
}

Result<Runner> make_batch_norm_backward(const Making& making) {
  const auto norm = batch_norm_of(making);
  if (!norm) return norm.error();
  const Expected image = norm->image, channel = norm->channel;
  if (Status good =
          expect(making, {image, image, channel, channel, channel}, {image, channel, channel});
      !good)
    return good.error();
  if (Status good = not_in_place(making.op(), 2); !good) return good.error();
  return Runner(
      [&libraries = making.libraries, shape = norm->shape](const KernelCall& call) -> Status {
        SUPERNEURONS_TRY(launch_batch_norm_backward(
            input(call, 0), input(call, 1), input(call, 2), input(call, 3), input(call, 4),
            output(call, 0), output(call, 1), output(call, 2), shape, libraries.stream));
        return Ok{};
      });
}

constexpr NativeKernel kKernels[] = {
    {"MaxPoolForward", make_pool<&launch_max_pool>},
    {"MaxPoolBackward", make_max_pool_backward},
    {"AvgPoolForward", make_pool<&launch_average_pool>},
    {"AvgPoolBackward", make_average_pool_backward},
    {"LrnForward", make_lrn},
    {"LrnBackward", make_lrn_backward},
    {"BatchNormForward", make_batch_norm},
    {"BatchNormBackward", make_batch_norm_backward},
};

}  // namespace

std::span<const NativeKernel> spatial_kernels() { return kKernels; }

}  // namespace superneurons

// Element by element ops, concatenation, dropout and the update.
#include <fmt/format.h>

#include "replay/cuda/elementwise.h"
#include "replay/cuda/native.h"
#include "replay/initial.h"

namespace superneurons {
namespace {

Result<std::int64_t> count_of(const Op& op) {
  OpAttributes get(op);
  const std::int64_t count = get.large("count");
  if (get.fault()) return *get.fault();
  return count;
}

Result<Runner> make_relu(const Making& making) {
  const auto count = count_of(making.op());
  if (!count) return count.error();
  if (Status good = expect(making, {{*count}}, {{*count}}); !good) return good.error();
  return Runner([&libraries = making.libraries, count = *count](const KernelCall& call) -> Status {
    SUPERNEURONS_TRY(launch_relu(input(call, 0), output(call, 0), count, libraries.stream));
    return Ok{};
  });
}

Result<Runner> make_relu_backward(const Making& making) {
  const auto count = count_of(making.op());
  if (!count) return count.error();
  if (Status good = expect(making, {{*count}, {*count}}, {{*count}}); !good) return good.error();
  return Runner([&libraries = making.libraries, count = *count](const KernelCall& call) -> Status {
    SUPERNEURONS_TRY(launch_relu_backward(input(call, 0), input(call, 1), output(call, 0), count,
                                          libraries.stream));
    return Ok{};
  });
}

/// y = ((x1 + x2) + x3) + ...: the first sum goes to y, the others add to it.
Result<Runner> make_add(const Making& making) {
  const auto count = count_of(making.op());
  if (!count) return count.error();
  const std::size_t inputs = making.op().reads.size();
  if (inputs < 2) return Error{.code = ErrorCode::bad_input, .message = "adds fewer than two"};
  if (Status good = expect(making, std::vector<Expected>(inputs, {*count}), {{*count}}); !good)
    return good.error();
  return Runner(
      [&libraries = making.libraries, count = *count, inputs](const KernelCall& call) -> Status {
        float* y = output(call, 0);
        SUPERNEURONS_TRY(launch_add(input(call, 0), input(call, 1), y, count, libraries.stream));
        for (std::size_t i = 2; i < inputs; ++i)
          SUPERNEURONS_TRY(launch_add(y, input(call, i), y, count, libraries.stream));
        return Ok{};
      });
}

/// Channels of each input, and the floats of one row of all of them.
struct Concat {
  std::int64_t n = 0, row = 0;
  std::vector<std::int64_t> widths;
  std::vector<Expected> parts;
};
Result<Concat> concat_of(const Op& op) {
  OpAttributes get(op);
  Concat concat;
  concat.n = get.count("n");
  const std::int64_t hw = get.count("hw");
  const int inputs = get.count("inputs");
  for (int i = 0; i < inputs && !get.fault(); ++i) {
    const std::int64_t width = capped_product({get.count(fmt::format("c{}", i).c_str()), hw});
    concat.widths.push_back(width);
    concat.parts.push_back({capped_product({concat.n, width})});
    concat.row += width;
  }
  if (get.fault()) return *get.fault();
  return concat;
}

Result<Runner> make_concat(const Making& making) {
  auto concat = concat_of(making.op());
  if (!concat) return concat.error();
  if (Status good = expect(making, concat->parts, {{capped_product({concat->n, concat->row})}});
      !good)
    return good.error();
  return Runner(
      [&libraries = making.libraries, concat = *concat](const KernelCall& call) -> Status {
        float* y = output(call, 0);
        for (std::size_t i = 0; i < concat.widths.size(); ++i) {
          SUPERNEURONS_TRY(launch_copy_rows(input(call, i), concat.widths[i], y, concat.row,
                                            concat.widths[i], concat.n, libraries.stream));
          y += concat.widths[i];
        }
        return Ok{};
      });
}

Result<Runner> make_concat_backward(const Making& making) {
  auto concat = concat_of(making.op());
  if (!concat) return concat.error();
  if (Status good = expect(making, {{capped_product({concat->n, concat->row})}}, concat->parts);
      !good)
    return good.error();
  return Runner(
      [&libraries = making.libraries, concat = *concat](const KernelCall& call) -> Status {
        const float* dy = input(call, 0);
        for (std::size_t i = 0; i < concat.widths.size(); ++i) {
          SUPERNEURONS_TRY(launch_copy_rows(dy, concat.row, output(call, i), concat.widths[i],
                                            concat.widths[i], concat.n, libraries.stream));
          dy += concat.widths[i];
        }
        return Ok{};
      });
}

Result<Runner> make_copy(const Making& making) {
  const auto count = count_of(making.op());
  if (!count) return count.error();
  const std::size_t outputs = making.op().writes.size();
  if (Status good = expect(making, {{*count}}, std::vector<Expected>(outputs, {*count})); !good)
    return good.error();
  return Runner(
      [&libraries = making.libraries, count = *count, outputs](const KernelCall& call) -> Status {
        for (std::size_t i = 0; i < outputs; ++i)
          SUPERNEURONS_TRY(launch_copy_rows(input(call, 0), count, output(call, i), count, count, 1,
                                            libraries.stream));
        return Ok{};
      });
}

struct Dropout {
  std::int64_t count = 0;
  float rate = 0;
};
Result<Dropout> dropout_of(const Op& op) {
  OpAttributes get(op);
  const Dropout dropout{get.large("count"), static_cast<float>(get.number("rate"))};
  if (get.fault()) return *get.fault();
  if (dropout.rate >= 0 && dropout.rate < 1) return dropout;
  return Error{.code = ErrorCode::bad_input, .message = "a dropout rate outside of [0, 1)"};
}

Result<Runner> make_dropout(const Making& making) {
  const auto dropout = dropout_of(making.op());
  if (!dropout) return dropout.error();
  if (Status good = expect(making, {{dropout->count}}, {{dropout->count}, {dropout->count, 1}});
      !good)
    return good.error();
  return Runner([&libraries = making.libraries, dropout = *dropout,
                 key = mix(making.seed, making.id.index)](const KernelCall& call) -> Status {
    SUPERNEURONS_TRY(launch_dropout(input(call, 0), output(call, 0),
                                    reinterpret_cast<unsigned char*>(call.writes[1]), dropout.count,
                                    key, static_cast<std::uint64_t>(call.training_step),
                                    dropout.rate, libraries.stream));
    return Ok{};
  });
}

Result<Runner> make_dropout_backward(const Making& making) {
  const auto dropout = dropout_of(making.op());
  if (!dropout) return dropout.error();
  if (Status good = expect(making, {{dropout->count}, {dropout->count, 1}}, {{dropout->count}});
      !good)
    return good.error();
  return Runner(
      [&libraries = making.libraries, dropout = *dropout](const KernelCall& call) -> Status {
        SUPERNEURONS_TRY(launch_dropout_backward(
            input(call, 0), reinterpret_cast<const unsigned char*>(call.reads[1]), output(call, 0),
            dropout.count, dropout.rate, libraries.stream));
        return Ok{};
      });
}

Result<Runner> make_sgd(const Making& making) {
  OpAttributes get(making.op());
  const std::int64_t count = get.large("count");
  const auto rate = static_cast<float>(get.number("rate"));
  const auto momentum = static_cast<float>(get.number("momentum"));
  const auto decay = static_cast<float>(get.number("weight_decay"));
  if (get.fault()) return *get.fault();
  if (Status good = expect(making, {{count}, {count}, {count}}, {{count}, {count}}); !good)
    return good.error();
  return Runner([=, &libraries = making.libraries](const KernelCall& call) -> Status {
    SUPERNEURONS_TRY(launch_sgd(output(call, 0), input(call, 1), output(call, 1), count, rate,
                                momentum, decay, libraries.stream));
    return Ok{};
  });
}

constexpr NativeKernel kKernels[] = {
    {"ReluForward", make_relu},
    {"ReluBackward", make_relu_backward},
    {"AddForward", make_add},
    {"Accumulate", make_add},
    {"ConcatForward", make_concat},
    {"ConcatBackward", make_concat_backward},
    {"Copy", make_copy},
    {"DropoutForward", make_dropout},
    {"DropoutBackward", make_dropout_backward},
    {"SgdUpdate", make_sgd},
};

}  // namespace

std::span<const NativeKernel> elementwise_kernels() { return kKernels; }

}  // namespace superneurons

#include "replay/data_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>

#include "ir/files.h"
#include "ir/record.h"
#include "replay/initial.h"

namespace superneurons {

template <class Archive, class DataType>
requires std::is_same_v<std::remove_const_t<DataType>, DataSet>
void fields(Archive& archive, DataType& data) {
  archive.required("name", data.name);
  archive.required("shape", data.shape);
  archive.required("classes", data.classes);
  archive.required("most", data.most);
  archive.required("train", data.train);
  archive.required("test", data.test);
  archive.optional("origin", data.origin, "");
}

namespace {

constexpr std::string_view kFormat = "superneurons-data";
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;  // of all images: 1 GiB
constexpr std::int64_t kMostSide = 1 << 14;

std::string data_problem(const DataSet& data) {
  if (data.shape.size() != 3 || std::any_of(data.shape.begin(), data.shape.end(),
                                            [](auto side) { return side < 1 || side > kMostSide; }))
    return "\"shape\" is not [channels, height, width], each from 1 to 16384";
  if (data.classes < 1 || data.classes > 1'000'000) return "\"classes\" is not from 1 to 1000000";
  if (data.most < 1 || data.most > 65535) return "\"most\" is not from 1 to 65535";
  const std::int64_t room = kMostPixels / data.image();
  if (data.train < 1 || data.test < 0 || data.train > room || data.test > room - data.train)
    return fmt::format("\"train\" and \"test\" are not from 1 and 0 to {} images together", room);
  return "";
}

Result<DataSet> parse_header(std::string_view text) {
  JsonDocument json;
  const auto fault = [](std::string message) { return Error{ErrorCode::bad_input, message}; };
  if (auto problem = json.parse(text)) return fault(*problem + " (would be a header in JSON)");
  std::string problem = repeated_key_problem(json);
  if (problem.empty()) problem = header_problem(json.root(), kFormat);
  if (!problem.empty()) return fault(problem);
  FieldReader reader(json.root(), "the header");
  DataSet data;
  fields(reader, data);
  problem = reader.problem().empty() ? data_problem(data) : reader.problem();
  if (!problem.empty()) return fault(problem);
  return data;
}

/// The next number of a line, which ends at a comma or the line's end; nothing if it is none.
std::optional<std::int64_t> next_number(std::string_view& rest, bool last) {
  std::int64_t number = 0;
  const auto [end, failed] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const auto used = static_cast<std::size_t>(end - rest.data());
  if (failed != std::errc{} || (used == rest.size()) != last) return std::nullopt;
  if (!last && rest[used] != ',') return std::nullopt;
  rest.remove_prefix(last ? used : used + 1);
  return number;
}

Status parse_image(std::string_view text, DataSet& data) {
  const std::int64_t pixels = data.image();
  for (std::int64_t i = 0; i <= pixels; ++i) {
    const std::optional<std::int64_t> number = next_number(text, i == pixels);
    const std::int64_t most = i == 0 ? data.classes - 1 : data.most;
    if (!number || *number < 0 || *number > most)
      return Error{
          ErrorCode::bad_input,
          fmt::format("{} is not a whole number from 0 to {} (would be LABEL and {} pixels "
                      "with commas)",
                      i == 0 ? "the label" : fmt::format("pixel {}", i), most, pixels)};
    if (i == 0) data.labels.push_back(static_cast<std::int32_t>(*number));
    else  // exact in double, rounded once
      data.pixels.push_back(static_cast<float>(
          2.0 * static_cast<double>(*number) / static_cast<double>(data.most) - 1.0));
  }
  return Ok{};
}

Error unfit(const DataSet& data, const std::string& why) {
  return {ErrorCode::bad_usage,
          fmt::format("--data {} does not go with the trace: {}", data.name, why)};
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, "x"));
}

}  // namespace

Result<DataSet> read_data_set(const std::string& path) {
  DataSet data;
  bool has_header = false;
  std::int64_t last = 0;
  const auto line = [&](std::string_view text, std::int64_t number) -> Status {
    last = number;
    if (text.empty()) return Ok{};
    Status status = Ok{};
    if (!has_header) {
      Result<DataSet> header = parse_header(text);
      has_header = true;
      if (header) data = *std::move(header);
      else status = header.error();
    } else if (static_cast<std::int64_t>(data.labels.size()) == data.train + data.test) {
      status = Error{ErrorCode::bad_input,
                     fmt::format("more than the {} images of the header", data.train + data.test)};
    } else {
      status = parse_image(text, data);
    }
    if (!status) return Error{ErrorCode::bad_input, status.error().message, path, number};
    return status;
  };
  if (Status status = for_each_line(path, line); !status) return status.error();
  if (!has_header) return Error{ErrorCode::bad_input, "is empty (would start with a header)", path};
  if (static_cast<std::int64_t>(data.labels.size()) != data.train + data.test)
    return Error{
        ErrorCode::bad_input,
        fmt::format("is cut off after image {} of {}", data.labels.size(), data.train + data.test),
        path, last};
  return data;
}

Result<BatchTensors> batch_tensors(const Trace& trace, const DataSet& data) {
  BatchTensors found;
  const Op* loss = nullptr;
  for (const Op& op : trace.ops)
    if (op.kind == "SoftmaxCrossEntropyForward" && op.reads.size() == 2) loss = &op;
  if (loss == nullptr || trace.capability(Fact::native) == Capability::none)
    return unfit(data, "only traces of the built-in networks take a data set");
  found.labels = loss->reads[1].tensor;
  const Tensor* images = nullptr;
  for (std::uint32_t i = 0; i < trace.tensors.size(); ++i)
    if (trace.tensors[i].role == Role::input && TensorId{i} != found.labels) {
      if (images != nullptr) return unfit(data, "it has more than one input of images");
      images = &trace.tensors[i];
      found.images = {i};
    }
  if (images == nullptr || images->shape.size() != 4) return unfit(data, "it takes no images");
  const std::vector<std::int64_t> taken(images->shape.begin() + 1, images->shape.end());
  found.batch = images->shape[0];
  if (taken != data.shape || found.batch < 1 ||
      images->bytes.count / 4 / found.batch != data.image() || images->bytes.count % 4 != 0)
    return unfit(data, fmt::format("its images are {}, and the trace takes {}",
                                   shape_text(data.shape), shape_text(taken)));
  if (trace[found.labels].bytes.count != 4 * found.batch)
    return unfit(data, "it has not one label for each image");
  const auto classes = loss->attributes.find("classes");
  if (classes == loss->attributes.end() || classes->second < static_cast<double>(data.classes))
    return unfit(data, fmt::format("the network knows fewer than {} classes", data.classes));
  if (found.batch > data.train)
    return unfit(data, fmt::format("it takes {} images at once, and there are {} to train on",
                                   found.batch, data.train));
  return found;
}

std::vector<std::int64_t> images_of_step(const DataSet& data, std::int64_t batch,
                                         std::uint64_t seed, std::int64_t training_step) {
  const std::int64_t epoch = training_step / steps_per_epoch(data, batch);
  const std::int64_t first = training_step % steps_per_epoch(data, batch) * batch;
  const std::uint64_t key = mix(seed, static_cast<std::uint64_t>(epoch));
  std::vector<std::int64_t> order(static_cast<std::size_t>(data.train));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(mix(key, i) % i)]);
  return {order.begin() + first, order.begin() + first + batch};
}

void write_images(const DataSet& data, const std::vector<std::int64_t>& images, float* pixels,
                  std::int32_t* labels) {
  for (const std::int64_t image : images) {
    pixels = std::copy_n(data.pixels.begin() + image * data.image(), data.image(), pixels);
    *labels++ = data.labels[static_cast<std::size_t>(image)];
  }
}

InputSource training_batches(const DataSet& data, const BatchTensors& tensors, std::uint64_t seed) {
  const std::int64_t batch = tensors.batch;
  return {{tensors.images, tensors.labels},
          [&data, batch, seed](int training_step, std::size_t which, std::span<std::byte> to) {
            std::vector<float> pixels(static_cast<std::size_t>(batch * data.image()));
            std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
            write_images(data, images_of_step(data, batch, seed, training_step), pixels.data(),
                         labels.data());
            std::memcpy(to.data(), which == 0 ? static_cast<void*>(pixels.data()) : labels.data(),
                        to.size());
          }};
}

}  // namespace superneurons

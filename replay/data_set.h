// Labelled images to train on and to test with (text form: traces/FORMAT.md; data/digits.csv.gz).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/result.h"
#include "ir/trace.h"
#include "replay/feed.h"

namespace superneurons {

struct DataSet {
  std::string name;
  std::string origin;
  std::vector<std::int64_t> shape;     // channels, height, width of an image
  std::int64_t classes = 0;            // labels are below it
  std::int64_t most = 1;               // pixels of the file are whole numbers from 0 to it
  std::int64_t train = 0, test = 0;    // images: the first are trained on, the last never
  std::vector<float> pixels{};         // of all images, from -1 (0 in the file) to 1 (`most`)
  std::vector<std::int32_t> labels{};  // of all images

  std::int64_t image() const { return shape[0] * shape[1] * shape[2]; }  // pixels of one
};

/// Reads a data set, gzipped where the name ends in .gz. Error bad_input with the line.
Result<DataSet> read_data_set(const std::string& path);

/// Where a trace takes images and labels: its one float input, and what the loss compares with.
struct BatchTensors {
  TensorId images, labels;
  std::int64_t batch = 0;
};
/// Error bad_usage if the trace is no training step of one of our networks on such images, or takes
/// more at once than there are to train on.
Result<BatchTensors> batch_tensors(const Trace& trace, const DataSet& data);

/// Training steps in which each training image is seen at most once; what is left over waits for
/// the next epoch, which has another order.
inline std::int64_t steps_per_epoch(const DataSet& data, std::int64_t batch) {
  return data.train / batch;
}
/// The training images of a training step. The order of each epoch follows from seed and epoch
/// (Fisher and Yates 1938).
std::vector<std::int64_t> images_of_step(const DataSet& data, std::int64_t batch,
                                         std::uint64_t seed, std::int64_t training_step);

/// Writes images and their labels, in this order, as the network takes them.
void write_images(const DataSet& data, const std::vector<std::int64_t>& images, float* pixels,
                  std::int32_t* labels);

/// Feeds the mini-batches of images_of_step(). `data` must outlive it.
InputSource training_batches(const DataSet& data, const BatchTensors& tensors, std::uint64_t seed);

}  // namespace superneurons

// The built-in networks as functions; networks() lists them by name.
#pragma once

#include "networks/network.h"

namespace superneurons {

/// AlexNet as trained by SuperNeurons (PPoPP 2018): 227x227 images, no groups, 62,378,344
/// parameters.
Network alexnet();
/// VGG configurations D and E (Simonyan and Zisserman 2015) on 227x227 images, as SuperNeurons.
Network vgg16();
Network vgg19();

/// Inception v4 and networks of its blocks.
struct InceptionOptions {
  std::string name = "inception_v4";
  Shape image = {3, 299, 299};  // square, 75 pixels or more
  int blocks_a = 4, blocks_b = 7, blocks_c = 3;
  std::int64_t divisor = 1;  // of all channels, up to 32
  std::int64_t classes = 1000;
};
Network inception(const InceptionOptions& options);
/// 299x299 images, 42,679,816 parameters.
Network inception_v4();

/// DenseNet-BC: dense blocks of bottlenecks with transitions between them.
struct DenseNetOptions {
  std::string name = "densenet121";
  Shape image = {3, 224, 224};  // square, 32 pixels or more
  std::vector<std::int64_t> blocks = {6, 12, 24, 16};
  std::int64_t growth = 32;  // channels that a layer adds
  std::int64_t classes = 1000;
};
Network densenet(const DenseNetOptions& options);
/// 224x224 images as published, 7,978,856 parameters.
Network densenet121();

/// Every kind of layer on 3x32x32 images: trains in milliseconds on a CPU.
Network small_cnn();
/// A ResNet of 8 layers on the 8x8 images of data/digits.csv.gz: learns them in seconds on a CPU.
Network digits_resnet();

}  // namespace superneurons

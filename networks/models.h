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
/// Every kind of layer on 3x32x32 images: trains in milliseconds on a CPU.
Network small_cnn();

}  // namespace superneurons

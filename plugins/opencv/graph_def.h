// Reads the inputs of a frozen TensorFlow graph, and checks its tensors before OpenCV opens it.
#pragma once

#include <string_view>

#include "input.h"

namespace varda_opencv {

struct Graph {
  Inputs inputs;                // the Placeholder nodes
  bool channels_first = false;  // some node has data_format NCHW
};

/// Field numbers are from tensorflow/core/framework (graph, node_def, attr_value, tensor and
/// tensor_shape.proto; https://github.com/tensorflow/tensorflow). Unknown fields are skipped, as in
/// protobuf.
///
/// A problem is reported for: bytes that are no GraphDef, a graph without nodes, and a tensor whose
/// values do not fill its shape. OpenCV 4.6 does not compare values with shapes everywhere.
Graph read_graph(std::string_view bytes);

}  // namespace varda_opencv

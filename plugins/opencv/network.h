// One model: a cv::dnn::Net, its description, and runs.
#pragma once

#include <cstdint>
#include <opencv2/dnn.hpp>
#include <string>
#include <vector>

#include "infer/plugin_abi.h"
#include "input.h"

/// A loaded model. A cv::dnn::Net keeps the values of its current run, so that only one run at a
/// time is possible; the host loads a copy for each instance.
struct varda_engine_model {
  struct Place {
    std::string name;
    std::vector<std::int64_t> dims;  // -1: open
  };

  std::vector<Place> input_places;
  std::vector<Place> output_places;
  std::vector<varda_engine_spec> inputs;
  std::vector<varda_engine_spec> outputs;
  varda_engine_model_info info{};

  std::int32_t load(const varda_engine_load_options& options, std::string& problem);
  std::int32_t run(const varda_engine_tensor* in, std::uint32_t in_count, const char* const* names,
                   std::uint32_t names_count, varda_engine_result& result, std::string& problem);

 private:
  std::int32_t open(const std::string& file, std::vector<varda_opencv::Input>& found,
                    std::string& problem);
  std::int32_t choose_inputs(const varda_engine_load_options& options,
                             std::vector<varda_opencv::Input> found, std::string& problem);
  std::int32_t describe(std::string& problem);
  std::vector<cv::Mat> forward(const std::vector<cv::String>& names);
  std::vector<std::vector<std::int64_t>> shapes_with_batch(std::int64_t batch);
  bool moves_channels(std::size_t rank) const { return channels_last_ && rank >= 4; }

  cv::dnn::Net net_;
  std::string undeclared_;      // why the files declare no inputs; "" if they do
  bool named_inputs_ = true;    // OpenCV knows the inputs by the names of the files
  bool channels_last_ = false;  // the graph is NHWC; OpenCV's blobs are NCHW
};

/// The outputs of one run, copied from the net's memory.
struct varda_engine_result {
  struct Output {
    std::vector<std::int64_t> dims;
    std::vector<float> data;
  };
  std::vector<Output> outputs;
  std::vector<varda_engine_tensor> tensors;
};

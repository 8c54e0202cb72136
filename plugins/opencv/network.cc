#include "network.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "graph_def.h"
#include "library.h"
#include "plugins/mapped_file.h"
#include "text_model.h"

namespace {

using varda_opencv::Input;
using varda_plugins::MappedFile;
using Dims = std::vector<std::int64_t>;

std::string text_of(const Dims& dims) {
  std::string out;
  for (const std::int64_t size : dims) out += (out.empty() ? "" : "x") + std::to_string(size);
  return out;
}

std::string names_of(const std::vector<Input>& inputs) {
  std::string out;
  for (const Input& input : inputs) out += (out.empty() ? "\"" : ", \"") + input.name + "\"";
  return out.empty() ? "none" : out;
}

/// "image=-1x48x48x1 mask=1x48x48"
std::optional<std::vector<Input>> parse_inputs(std::string_view text) {
  std::vector<Input> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (item.empty()) continue;
    const std::size_t equals = item.rfind('=');
    if (equals == std::string_view::npos || equals == 0) return std::nullopt;
    Input input{std::string(item.substr(0, equals)), true, {}, true};
    std::string_view sizes = item.substr(equals + 1);
    while (!sizes.empty()) {
      std::int64_t size = 0;
      const auto parsed = std::from_chars(sizes.data(), sizes.data() + sizes.size(), size);
      if (parsed.ec != std::errc()) return std::nullopt;
      sizes.remove_prefix(static_cast<std::size_t>(parsed.ptr - sizes.data()));
      if (sizes == "x" || (!sizes.empty() && sizes.front() != 'x')) return std::nullopt;
      if (!sizes.empty()) sizes.remove_prefix(1);
      input.dims.push_back(size);
    }
    if (input.dims.empty()) return std::nullopt;
    out.push_back(std::move(input));
  }
  if (out.empty()) return std::nullopt;
  return out;
}

/// Moves the channels of each sample: [samples, a, b] becomes [samples, b, a].
void swap_axes(const float* from, std::size_t samples, std::size_t a, std::size_t b, float* to) {
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::size_t j = 0; j < b; ++j) {
      for (std::size_t i = 0; i < a; ++i) *to++ = from[i * b + j];
    }
    from += a * b;
  }
}

std::size_t product(std::span<const std::int64_t> dims) {
  std::size_t out = 1;
  for (const std::int64_t size : dims) out *= static_cast<std::size_t>(size);
  return out;
}

std::string other_file(const std::string& file, std::string_view ending) {
  return std::filesystem::path(file).replace_extension(ending).string();
}

}  // namespace

std::int32_t varda_engine_model::load(const varda_engine_load_options& options,
                                      std::string& problem) {
  varda_opencv::use_threads(options.intra_op_threads);
  std::vector<Input> found;
  if (const auto code = open(options.file, found, problem); code != VARDA_ENGINE_OK) return code;
  if (net_.empty()) {
    problem = "the network has no layers";
    return VARDA_ENGINE_INVALID;
  }
  // OpenCV's own code on the CPU, without the other engines that it can call.
  net_.setPreferableBackend(cv::dnn::DNN_BACKEND_OPENCV);
  net_.setPreferableTarget(cv::dnn::DNN_TARGET_CPU);
  if (const auto code = choose_inputs(options, std::move(found), problem); code != VARDA_ENGINE_OK)
    return code;
  return describe(problem);
}

// Reads the files into `net_`. `found` gets the declared inputs.
std::int32_t varda_engine_model::open(const std::string& file, std::vector<Input>& found,
                                      std::string& problem) {
  const std::string ending = std::filesystem::path(file).extension().string();
  const std::string_view text_ending = ending == ".caffemodel" ? ".prototxt"
                                       : ending == ".weights"  ? ".cfg"
                                                               : "";
  if (ending != ".pb" && text_ending.empty()) {
    problem = "the OpenCV engine reads .pb, .caffemodel and .weights files";
    return VARDA_ENGINE_UNSUPPORTED;
  }
  if (std::filesystem::path(file).filename() == "saved_model.pb") {
    problem = "saved_model.pb is a SavedModel: the OpenCV engine reads frozen graphs only";
    return VARDA_ENGINE_UNSUPPORTED;
  }
  const MappedFile weights(file);
  if (!weights.problem().empty()) {
    problem = file + " cannot be read: " + weights.problem();
    return VARDA_ENGINE_INVALID;
  }
  // Protobuf counts bytes in an int.
  if (weights.bytes().size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    problem = file + " is larger than 2 GiB, the limit of its format";
    return VARDA_ENGINE_INVALID;
  }
  if (text_ending.empty()) {
    varda_opencv::Graph graph = varda_opencv::read_graph(weights.bytes());
    if (!graph.inputs.problem.empty()) {
      problem = std::move(graph.inputs.problem);
      return VARDA_ENGINE_INVALID;
    }
    channels_last_ = !graph.channels_first;
    found = std::move(graph.inputs.all);
    net_ = cv::dnn::readNetFromTensorflow(weights.bytes().data(), weights.bytes().size());
    return VARDA_ENGINE_OK;
  }
  const std::string structure_file = other_file(file, text_ending);
  const MappedFile structure(structure_file);
  if (!structure.problem().empty()) {
    problem = structure_file + " cannot be read: " + structure.problem();
    return VARDA_ENGINE_INVALID;
  }
  const std::string_view text = structure.bytes(), bytes = weights.bytes();
  const bool caffe = text_ending == ".prototxt";
  named_inputs_ = caffe;
  varda_opencv::Inputs inputs =
      caffe ? varda_opencv::inputs_of_prototxt(text) : varda_opencv::inputs_of_cfg(text);
  undeclared_ = std::move(inputs.problem);
  found = std::move(inputs.all);
  net_ = caffe ? cv::dnn::readNetFromCaffe(text.data(), text.size(), bytes.data(), bytes.size())
               : cv::dnn::readNetFromDarknet(text.data(), text.size(), bytes.data(), bytes.size());
  return VARDA_ENGINE_OK;
}

// The option `inputs` replaces the declared inputs. Types come from the files.
std::int32_t varda_engine_model::choose_inputs(const varda_engine_load_options& options,
                                               std::vector<Input> found, std::string& problem) {
  std::vector<Input> chosen = found;
  bool declared = false;
  for (std::uint32_t i = 0; i < options.options_count; ++i) {
    if (std::string_view(options.options[i].name) != "inputs") {
      problem = std::string("the OpenCV engine has no option \"") + options.options[i].name + "\"";
      return VARDA_ENGINE_INVALID;
    }
    auto parsed = parse_inputs(options.options[i].value);
    if (!parsed) {
      problem = std::string("option inputs is NAME=SIZExSIZE…, separated by spaces, not \"") +
                options.options[i].value + "\"";
      return VARDA_ENGINE_INVALID;
    }
    chosen = std::move(*parsed);
    declared = true;
  }
  if (!declared && !undeclared_.empty()) {
    problem = undeclared_;
    return VARDA_ENGINE_INVALID;
  }
  if (chosen.empty()) {
    problem = "the model has no input: a frozen graph needs a Placeholder";
    return VARDA_ENGINE_INVALID;
  }
  for (Input& input : chosen) {
    const auto in_file = std::find_if(found.begin(), found.end(),
                                      [&](const Input& one) { return one.name == input.name; });
    if (in_file != found.end()) {
      input.fp32 = in_file->fp32;
    } else if (!found.empty()) {
      problem = "option inputs names \"" + input.name + "\", but the model's inputs are " +
                names_of(found);
      return VARDA_ENGINE_INVALID;
    }
    const std::string advice = ": set it with options: {inputs: \"" + input.name +
                               "=-1x48x48x1\"} in model.yaml, with the model's own sizes";
    if (!input.fp32) {
      problem =
          "input \"" + input.name + "\" is not FP32, the only type that the OpenCV engine takes";
      return VARDA_ENGINE_UNSUPPORTED;
    }
    if (!input.known_rank || input.dims.empty()) {
      problem = "input \"" + input.name + "\" has no shape" + advice;
      return VARDA_ENGINE_INVALID;
    }
    const Dims sample(input.dims.begin() + 1, input.dims.end());
    if (input.dims.front() == 0 || input.dims.front() < -1 ||
        std::any_of(sample.begin(), sample.end(), [](std::int64_t size) { return size < 1; })) {
      problem = "the shape " + text_of(input.dims) + " of input \"" + input.name +
                "\" is open beyond its first size" + advice;
      return VARDA_ENGINE_INVALID;
    }
    if (varda_opencv::elements_of(sample) < 0 ||
        input.dims.front() > varda_opencv::kElementsMax / varda_opencv::elements_of(sample)) {
      problem = "input \"" + input.name + "\" has more than " +
                std::to_string(varda_opencv::kElementsMax) + " elements";
      return VARDA_ENGINE_INVALID;
    }
    input_places.push_back({input.name, input.dims});
  }
  return VARDA_ENGINE_OK;
}

std::vector<cv::Mat> varda_engine_model::forward(const std::vector<cv::String>& names) {
  std::vector<cv::Mat> out;
  net_.forward(out, names);
  return out;
}

// Runs the net on zeros, and returns the shape of each output place.
std::vector<Dims> varda_engine_model::shapes_with_batch(std::int64_t batch) {
  for (const Place& place : input_places) {
    std::vector<int> sizes;
    for (const std::int64_t size : place.dims)
      sizes.push_back(static_cast<int>(size < 0 ? batch : size));
    if (moves_channels(sizes.size())) std::rotate(sizes.begin() + 1, sizes.end() - 1, sizes.end());
    net_.setInput(cv::Mat(sizes, CV_32F, cv::Scalar(0)), named_inputs_ ? place.name : "");
  }
  std::vector<cv::String> names;
  for (const Place& place : output_places) names.push_back(place.name);
  std::vector<Dims> out;
  for (const cv::Mat& blob : forward(names)) {
    Dims dims(blob.size.p, blob.size.p + blob.dims);
    if (moves_channels(dims.size())) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
    out.push_back(std::move(dims));
  }
  return out;
}

// Shapes of outputs are known only after a run. A run with two samples shows which sizes follow the
// batch; a graph that cannot take two samples has a fixed batch of one.
std::int32_t varda_engine_model::describe(std::string& problem) {
  for (const cv::String& name : net_.getUnconnectedOutLayersNames())
    output_places.push_back({name, {}});
  if (output_places.empty()) {
    problem = "the network has no output";
    return VARDA_ENGINE_INVALID;
  }
  const bool open = std::any_of(input_places.begin(), input_places.end(),
                                [](const Place& place) { return place.dims.front() < 0; });
  std::vector<Dims> one = shapes_with_batch(1), two;
  if (open) {
    try {
      two = shapes_with_batch(2);
    } catch (const cv::Exception&) {
      for (Place& place : input_places) place.dims.front() = std::abs(place.dims.front());
    }
  }
  for (std::size_t i = 0; i < output_places.size(); ++i) {
    Place& place = output_places[i];
    place.dims = one[i];
    for (std::size_t d = 0; i < two.size() && two[i].size() == one[i].size() && d < one[i].size();
         ++d)
      if (two[i][d] != one[i][d]) place.dims[d] = -1;
    // One row for each detection: the number depends on the image.
    if (net_.getLayer(net_.getLayerId(place.name))->type == "DetectionOutput" &&
        place.dims.size() == 4)
      place.dims[2] = -1;
  }
  const auto spec = [](const Place& place) {
    return varda_engine_spec{place.name.c_str(), VARDA_DTYPE_FP32,
                             static_cast<std::uint32_t>(place.dims.size()), place.dims.data()};
  };
  for (const Place& place : input_places) inputs.push_back(spec(place));
  for (const Place& place : output_places) outputs.push_back(spec(place));
  info = {inputs.data(), static_cast<std::uint32_t>(inputs.size()), outputs.data(),
          static_cast<std::uint32_t>(outputs.size()), 1};
  return VARDA_ENGINE_OK;
}

std::int32_t varda_engine_model::run(const varda_engine_tensor* in, std::uint32_t in_count,
                                     const char* const* names, std::uint32_t names_count,
                                     varda_engine_result& result, std::string& problem) {
  for (std::uint32_t i = 0; i < in_count; ++i) {
    const varda_engine_tensor& tensor = in[i];
    const std::span<const std::int64_t> dims(tensor.dims, tensor.rank);
    if (tensor.size_bytes == 0) {
      problem = std::string("input \"") + tensor.name + "\" has no elements";
      return VARDA_ENGINE_INVALID;
    }
    std::vector<int> sizes(dims.begin(), dims.end());
    const bool moves = moves_channels(dims.size());
    if (moves) std::rotate(sizes.begin() + 1, sizes.end() - 1, sizes.end());
    cv::Mat blob(sizes, CV_32F);
    const std::size_t channels = moves ? static_cast<std::size_t>(dims.back()) : 1;
    const std::size_t samples = static_cast<std::size_t>(dims.front());
    const std::size_t pixels = product(dims) / samples / channels;
    swap_axes(static_cast<const float*>(tensor.data), samples, pixels, channels, blob.ptr<float>());
    net_.setInput(blob, named_inputs_ ? tensor.name : "");
  }
  std::vector<const Place*> places;
  for (const Place& place : output_places)
    if (names_count == 0) places.push_back(&place);
  for (std::uint32_t i = 0; i < names_count; ++i)
    places.push_back(&*std::find_if(output_places.begin(), output_places.end(),
                                    [&](const Place& place) { return place.name == names[i]; }));
  std::vector<cv::String> wanted;
  for (const Place* place : places) wanted.push_back(place->name);
  const std::vector<cv::Mat> blobs = forward(wanted);
  result.outputs.resize(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    cv::Mat blob;
    blobs[i].convertTo(blob, CV_32F);
    varda_engine_result::Output& out = result.outputs[i];
    out.dims.assign(blob.size.p, blob.size.p + blob.dims);
    out.data.resize(blob.total());
    const bool moves = moves_channels(out.dims.size()) && blob.total() > 0;
    const std::size_t samples = moves ? static_cast<std::size_t>(out.dims[0]) : 1;
    const std::size_t channels = moves ? static_cast<std::size_t>(out.dims[1]) : 1;
    if (moves) std::rotate(out.dims.begin() + 1, out.dims.begin() + 2, out.dims.end());
    if (!out.data.empty())
      swap_axes(blob.ptr<float>(), samples, channels, blob.total() / samples / channels,
                out.data.data());
    result.tensors.push_back({places[i]->name.c_str(), VARDA_DTYPE_FP32,
                              static_cast<std::uint32_t>(out.dims.size()), out.dims.data(),
                              out.data.data(), out.data.size() * sizeof(float)});
  }
  return VARDA_ENGINE_OK;
}

// Metadata of a server and its models.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::oip {

struct ServerMetadata {
  std::string name;
  std::string version;
  std::vector<std::string> extensions;
};
std::string write(const ServerMetadata& metadata);

struct ModelMetadata {
  std::string name;
  std::vector<std::string> versions;  // versions available now
  std::string platform;               // "onnxruntime_onnx": engine and format
  std::vector<tensor::Spec> inputs;
  std::vector<tensor::Spec> outputs;
  std::vector<std::string> labels;  // our extension, parameters.labels: names of the classes
};
std::string write(const ModelMetadata& metadata);
Result<ModelMetadata> parse_model_metadata(std::string_view text);

/// One version in the response to /v2/repository/index.
struct IndexEntry {
  std::string name;
  std::string version;
  std::string state;   // "READY", "LOADING", "UNAVAILABLE"
  std::string reason;  // "" for READY
  // Our extensions; omitted if empty.
  std::string code;   // for UNAVAILABLE: the reason code
  std::string files;  // for READY: identifies the served files, for the model's `.last-good`
  friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};
std::string write(const std::vector<IndexEntry>& index);
Result<std::vector<IndexEntry>> parse_index(std::string_view text);

}  // namespace varda::oip

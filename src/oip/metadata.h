// What a server and its models say about themselves.
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
Result<ServerMetadata> parse_server_metadata(std::string_view text);

struct ModelMetadata {
  std::string name;
  std::vector<std::string> versions;  // those that can be asked for now
  std::string platform;               // "onnxruntime_onnx": engine and format
  std::vector<tensor::Spec> inputs;
  std::vector<tensor::Spec> outputs;
  std::vector<std::string> labels;  // an extension of ours, as parameters.labels: names of the classes
};
std::string write(const ModelMetadata& metadata);
Result<ModelMetadata> parse_model_metadata(std::string_view text);

/// One version in the answer to /v2/repository/index.
struct IndexEntry {
  std::string name;
  std::string version;
  std::string state;   // "READY", "LOADING", "UNAVAILABLE"
  std::string reason;  // "" for READY
  // Ours; left out where empty.
  std::string code;   // of UNAVAILABLE: the reason as one word
  std::string files;  // of READY: names the files that serve, for `.last-good` of the model's directory
  friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};
std::string write(const std::vector<IndexEntry>& index);
Result<std::vector<IndexEntry>> parse_index(std::string_view text);

}  // namespace varda::oip

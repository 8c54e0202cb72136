// What an operator can be told about InferenceModels: which server runs a framework, and where node ports answer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::controllers {

/// How models of one framework are served. In command, args, env values, mount_path and ready_path stand for themselves:
/// {modelName}, {port}, {version}. The server shall listen on $(POD_IP):{port}; POD_IP is in its environment.
struct ServerEntry {
  std::string image;
  std::vector<std::string> command;  // empty: the image's
  std::vector<std::string> args;
  std::map<std::string, std::string> env;
  /// Where the model's directory is, with one folder a version and, at the edge, the file `target` that names the active one.
  std::string mount_path = "/models/{modelName}";
  std::string ready_path;  // answers 200 to GET once the model serves; empty: a TCP connection is enough
};

using ServerTable = std::map<std::string, ServerEntry>;  // by frameworkType

/// onnx, by varda-serve.
ServerTable builtin_servers();

/// The built-in table with the operator's own entries over it, as its configuration has them:
///   tensorflow: {image: tensorflow/serving, args: ["--model_base_path=/models/{modelName}"], readyPath: "/v1/models/{modelName}"}
/// An entry replaces the built-in one as a whole. kInvalid names the entry and the field.
Result<ServerTable> servers_from_json(const codec::Json& table);

struct InferenceModelOptions {
  ServerTable servers = builtin_servers();
  std::string fetch_image = "varda";  // runs `fetch --url U --sha256 S --to DIR` in the cloud layer
  /// One machine: the address its node ports answer at ("127.0.0.1"). Empty: a cluster, where any node's does.
  std::string node_port_host;
  const Clock* clock = nullptr;  // null: the machine's
};

}  // namespace varda::controllers

// What an operator can be told about InferenceModels: which server runs a framework, and where node ports answer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::controllers {

/// How models of one framework are served. In command, args, env values, mount_path, ready_path and the path of `reading` stand for
/// themselves: {modelName}, {port}, {version}. The server shall listen on $(POD_IP):{port}, or where it cannot be told an address,
/// on all of them; POD_IP is in its environment.
struct ServerEntry {
  std::string image;
  std::vector<std::string> command;  // empty: the image's
  std::vector<std::string> args;
  std::map<std::string, std::string> env;
  /// Where the model's directory is, with one folder a version.
  std::string mount_path = "/models/{modelName}";
  std::string ready_path;  // answers 200 to GET once the model serves; empty: a TCP connection is enough
  /// How the server learns which version is meant: EdgeModel::kTarget, folders are names and the file `target` says which;
  /// kNumbered, folders are numbers (api/edgeai/version_number.h) and the greatest is meant.
  std::string layout{api::EdgeModel::kTarget};
  std::vector<std::string>
      beside;  // of kNumbered: files at the root of an archive that belong beside the numbers, if they are there
  api::EdgeStatusReading reading;  // how it tells which version it serves
  codec::Json security_context;    // of its container; null: none
  bool closable = false;           // takes the flags of varda-serve that close its port: spec.security of a model
};

class CertificateIssuer;

using ServerTable = std::map<std::string, ServerEntry>;  // by frameworkType

/// onnx by varda-serve, tensorflow by TensorFlow Serving, triton and tensorrt by Triton: docs/design/016-cluster.md.
ServerTable builtin_servers();

/// Of the built-in table: varda-serve, by whatever name its image has.
ServerEntry varda_serve(std::string image = "varda-serve");

/// What our own images run as: an ordinary user, with a root file system that is not written to. Passes pod security `restricted`.
codec::Json restricted_container();

/// The built-in table with the operator's own entries over it, as its configuration has them:
///   openvino: {image: openvino/model_server:2024.4, args: [...], readyPath: ..., layout: numbered, status: {path: ..., list: ...}}
/// An entry replaces the built-in one as a whole. kInvalid names the entry and the field.
Result<ServerTable> servers_from_json(const codec::Json& table);

struct InferenceModelOptions {
  ServerTable servers = builtin_servers();
  std::string serve_image = "varda-serve";   // where it has to be that one: the first tier of joint inference
  std::string fetch_image = "varda";         // runs `fetch --url U --sha256 S --to DIR` in the cloud layer
  std::vector<std::string> fetch_arguments;  // further ones of that program: --allow-source
  std::string edge_network = "host";         // of models that do not say: host, hostport
  /// One machine: the address its node ports answer at ("127.0.0.1"). Empty: a cluster, where any node's does.
  std::string node_port_host;
  const Clock* clock = nullptr;  // null: the machine's
  /// Keeps the Secrets of servers with certificates of ours; outlives the controllers. Null: no
  /// Secret is kept.
  CertificateIssuer* certificates = nullptr;
};

}  // namespace varda::controllers

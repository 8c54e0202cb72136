// EdgeNode (edgeai.io/v1alpha1, cluster-scoped): the operator's work list for a node in spec, the node's report in status.
//
// The agent creates it and writes status; controllers/edgenode is the only writer of spec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

struct EdgeModelVersion {
  std::string version;
  std::string url;
  std::string sha256;
  Json unknown;
  static void describe(Type<EdgeModelVersion>& t);
};

struct EdgeModelServing {
  std::string url;  // where the pod answers
  Json unknown;
  static void describe(Type<EdgeModelServing>& t);
};

struct EdgeModel {
  std::string key;  // NAMESPACE/NAME of the InferenceModel
  std::string model_name;
  std::string framework;
  std::vector<EdgeModelVersion> versions;
  std::string target;
  std::optional<EdgeModelServing> serving;
  Json unknown;
  static void describe(Type<EdgeModel>& t);
};

struct EdgeNodeSpec {
  std::vector<EdgeModel> models;
  Json unknown;
  const EdgeModel* find_model(std::string_view key) const;
  Json to_json() const;
  static void describe(Type<EdgeNodeSpec>& t);
};

struct EdgeVersionReport {
  static constexpr std::string_view kPending = "Pending", kDownloading = "Downloading", kReady = "Ready", kFailed = "Failed";

  std::string version;
  std::string state;
  std::string reason;
  std::string message;
  std::string sha256;  // of the archive this speaks of: a manifest may give the name to another one; "" an agent that does not tell
  std::int64_t bytes = 0;
  std::int64_t bytes_done = 0;   // of a download that takes long; 0: nothing to tell
  std::int64_t bytes_total = 0;  // 0: not known
  Json unknown;
  static void describe(Type<EdgeVersionReport>& t);
};

struct EdgeServingReport {
  static constexpr std::string_view kReady = "Ready", kLoading = "Loading", kFailed = "Failed", kUnreachable = "Unreachable";

  std::string version;
  std::string state;
  std::string failed_version;
  std::string reason;
  std::string message;
  Json unknown;
  static void describe(Type<EdgeServingReport>& t);
};

struct EdgeModelReport {
  std::string key;
  std::string exposed;  // what `target` names on disk; "" none
  std::vector<EdgeVersionReport> versions;
  std::optional<EdgeServingReport> serving;
  Json unknown;
  const EdgeVersionReport* find_version(std::string_view version) const;
  static void describe(Type<EdgeModelReport>& t);
};

struct EdgeDisk {
  std::int64_t capacity_bytes = 0;
  std::int64_t available_bytes = 0;
  Json unknown;
  static void describe(Type<EdgeDisk>& t);
};

struct EdgeNodeStatus {
  std::int64_t observed_generation = 0;
  std::string agent_version;
  std::string model_root;
  std::string address;
  EdgeDisk disk;
  std::vector<meta::Condition> conditions;
  std::vector<EdgeModelReport> models;
  Json unknown;
  const EdgeModelReport* find_model(std::string_view key) const;
  Json to_json() const;
  static void describe(Type<EdgeNodeStatus>& t);
};

struct EdgeNode {
  meta::ObjectMeta metadata;
  EdgeNodeSpec spec;
  EdgeNodeStatus status;
  Json unknown;

  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<EdgeNode> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<EdgeNode>& t);
};

}  // namespace varda::api

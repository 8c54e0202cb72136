// Dataset (edgeai.io/v1alpha1 and sedna.io/v1alpha1): data on one node, and its number of samples.
//
// Both groups share one set of members. DatasetOf<G> has the spelling of one group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/group.h"
#include "api/edgeai/replication.h"
#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

struct DatasetSpec {
  std::string url;              // dataUrl in edgeai.io, url in sedna.io
  std::string format;           // any text; an unknown format becomes a condition
  std::string node_name;        // "" is accepted and becomes a condition
  std::string credential_name;  // sedna.io only
  std::string header;           // auto, yes, no; "": auto
  std::string sha256;           // of the file behind a URL, for runs without a node
  std::string path;             // of the data below `url`, an archive or a volume; "": all of it
  Json recount_period;          // 3600, "90m", "1h30m"; null: the agent's default
  std::optional<Replication> replication;
  Json unknown;

  /// recount_period in seconds; 0 if absent.
  std::int64_t recount_seconds() const;
};

template <Group G>
struct DatasetSpecOf : DatasetSpec {
  static void describe(Type<DatasetSpecOf>& t);
};

struct DatasetStatus {
  std::optional<std::int64_t> number_of_samples;  // absent: not counted yet
  std::string update_time;                        // last time the node found the data changed
  std::int64_t bytes = 0;
  std::optional<bool> exact;  // absent: not counted yet
  std::string inexact_because;
  std::int64_t malformed = 0;
  std::optional<EdgeMalformed> first_malformed;
  std::vector<EdgeClassCount> classes;  // at most EdgeDatasetReport::kClassesMax
  std::int64_t further_classes = 0;
  std::string header;  // yes, no; "": the format has no header
  std::string fingerprint;
  std::string node;  // node that counted
  std::optional<ReplicationStatus> replication;
  std::vector<meta::Condition> conditions;
  std::int64_t observed_generation = 0;
  Json unknown;
  Json to_json() const;
  static void describe(Type<DatasetStatus>& t);
};

template <Group G>
struct DatasetOf {
  static constexpr Group kGroup = G;

  meta::ObjectMeta metadata;
  DatasetSpecOf<G> spec;
  DatasetStatus status;
  Json unknown;

  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<DatasetOf> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<DatasetOf>& t);
};

using Dataset = DatasetOf<Group::kEdgeai>;
using SednaDataset = DatasetOf<Group::kSedna>;

/// Formats that a node can count, in lower case. A spec may use upper or lower case.
const std::vector<std::string>& known_dataset_formats();

}  // namespace varda::api

// The work list of a node, joined from all kinds. Pure.
#pragma once

#include <memory>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "controllers/replication/replication.h"
#include "hosting/node_work.h"
#include "hosting/placement.h"
#include "hosting/servers.h"

namespace varda::controllers::edgenode {

/// The surroundings of one EdgeNode, as cached.
struct EdgeNodeWorld {
  hosting::NodeList nodes;
  std::vector<std::shared_ptr<const api::InferenceModel>> models;
  std::vector<std::shared_ptr<const api::Pod>> pods;  // of models
  std::vector<std::shared_ptr<const api::Dataset>> datasets;
  std::vector<std::shared_ptr<const api::SednaDataset>> sedna_datasets;
  std::vector<replication::ReplicationClaim> claims;  // from kinds other than datasets
  const hosting::ServerTable* servers = nullptr;      // null: varda-serve serves every model
  replication::EdgeNodeMap
      edge_nodes;                    // required if files are copied or shared; else it may be empty
  std::vector<api::EdgeFile> files;  // the node reports their digests
  std::vector<hosting::NodeWork> jobs;                       // of all kinds of jobs
  std::shared_ptr<const hosting::ModelKeys> keys = nullptr;  // null: signatures are not checked
};

/// The complete work list of a node, sorted by key. The lists keep the oldest 256 models (including
/// those of jobs' workers) and the oldest 128 datasets of both groups. 64 worker places are divided
/// among namespaces, and in each among its jobs: a job with many replicas leaves room for the first
/// ones of others.
///
/// Lists are written as a whole, so an invalid item would block all others. Items that the API
/// server would reject (by the schema of EdgeNode, or as a duplicate key) are left out. `left_out`,
/// if not null, gets a line for each.
api::EdgeNodeSpec plan_edge_node(const api::EdgeNode& node, const EdgeNodeWorld& world,
                                 std::vector<std::string>* left_out = nullptr);

/// The value of spec.workers: `planned`, the planned list, plus the items of `current`, the present
/// list, that belong to none of these kinds. Operators write such workers by hand, for experiments.
codec::Json join_workers(const codec::Json& current, const codec::Json& planned,
                         const std::vector<std::string>& kinds);

}  // namespace varda::controllers::edgenode

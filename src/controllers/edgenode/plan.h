// What a node has to do: the work lists of all kinds, joined. Pure.
#pragma once

#include <memory>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "controllers/edgenode/job_work.h"
#include "controllers/inferencemodel/options.h"
#include "controllers/inferencemodel/placement.h"
#include "controllers/replication/plan.h"

namespace varda::controllers {

/// What is around one EdgeNode, as the caches hold it.
struct EdgeNodeWorld {
  NodeList nodes;
  std::vector<std::shared_ptr<const api::InferenceModel>> models;
  std::vector<std::shared_ptr<const api::Pod>> pods;  // of models
  std::vector<std::shared_ptr<const api::Dataset>> datasets;
  std::vector<std::shared_ptr<const api::SednaDataset>> sedna_datasets;
  std::vector<ReplicationClaim> claims;  // of other kinds than datasets
  const ServerTable* servers = nullptr;  // null: every model is served as by varda-serve
  EdgeNodeMap edge_nodes;                // where files are to be copied; else it may be empty
  std::vector<NodeWork> jobs;            // of all kinds
};

/// The whole work list of a node: pure, in the order of keys. Of more than 128 models (those of jobs' workers too), of more than
/// 128 datasets of both groups together the oldest ones are kept. More than 64 workers are shared among namespaces, in each among
/// its jobs: one with many replicas leaves room for others' first ones.
///
/// The lists are written whole, so an item that the API server would refuse (by the schema of EdgeNode, or as the second one of its
/// key) is left out, for what it asks would else keep all others from their node. `left_out`, where given, gets a line for each.
api::EdgeNodeSpec plan_edge_node(const api::EdgeNode& node, const EdgeNodeWorld& world,
                                 std::vector<std::string>* left_out = nullptr);

/// spec.workers: `ours`, the list as planned, and of `there`, the list as it is, what belongs to none of these kinds of jobs:
/// people write workers of their own, for experiments.
codec::Json join_workers(const codec::Json& there, const codec::Json& ours, const std::vector<std::string>& kinds);

}  // namespace varda::controllers

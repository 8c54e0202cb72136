// Of a worker and the place it runs at, the pod: the user's template and what is added to it.
#pragma once

#include <string>
#include <vector>

#include "controllers/workers/model_on_node.h"
#include "controllers/workers/workers.h"

namespace varda::controllers {

/// What is not the worker's but the place's.
struct PodPlace {
  std::string pod;                       // its name; "" the Deployment's pods
  std::string node;                      // "" the Deployment's
  const api::EdgeNode* agent = nullptr;  // of the node; null in the cloud
  ModelOnNode model;                     // as it is found there
};

/// `varda fetch`, for the models of workers in the cloud layer.
struct FetchProgram {
  std::string image;
  std::vector<std::string> arguments = {};  // besides those that the model determines
};

struct MadePod {
  Json metadata;  // labels and annotations
  Json spec;
  std::string template_hash, assignment_hash;
};

/// Cannot fail. kUsers of either layer, kServer of the edge.
MadePod make_pod(const Job& job, const Worker& worker, const PodPlace& place, const FetchProgram& fetch);

/// What a worker reads as its assignment: the same as its environment, as JSON.
Json make_assignment(const Job& job, const Worker& worker, const ModelOnNode& model);

/// Labels of children.
Json job_labels(const Job& job, const Worker& worker);
/// Of those, what selects its pods and no others.
Json worker_selector(const Job& job, const Worker& worker);

/// Where a worker finds version `version` of its model; "" it has none there.
std::string model_path(const Worker& worker, const std::string& version);
/// Of the Service's pods: the first TCP port that is declared, else the Service's.
std::int64_t bind_port(const Worker& worker);

}  // namespace varda::controllers

// Builds the pod of a worker for one place, from the user's template and our additions.
#pragma once

#include <string>
#include <vector>

#include "controllers/workers/model_on_node.h"
#include "controllers/workers/workers.h"

namespace varda::controllers::workers {

/// The parts that depend on the place, not on the worker.
struct PodPlace {
  std::string pod;                       // pod name; "": pods of a Deployment
  std::string node;                      // "": chosen for the Deployment
  const api::EdgeNode* agent = nullptr;  // of the node; null in the cloud
  ModelOnNode model;                     // as found at the place
};

/// `varda fetch`, for the models of workers in the cloud layer.
struct FetchProgram {
  std::string image;
  std::vector<std::string> arguments = {};  // in addition to those that the model determines
};

struct MadePod {
  Json metadata;  // labels and annotations
  Json spec;
  std::string template_hash, assignment_hash;
};

/// Cannot fail. Pods::kUsers in both layers, Pods::kServer at the edge only.
MadePod make_pod(const Job& job, const Worker& worker, const PodPlace& place,
                 const FetchProgram& fetch);

/// The assignment that a worker reads as JSON; the content equals its environment.
Json make_assignment(const Job& job, const Worker& worker, const ModelOnNode& model);

/// Labels of children.
Json job_labels(const Job& job, const Worker& worker);
/// The subset of the labels that selects the worker's pods and no others.
Json worker_selector(const Job& job, const Worker& worker);

/// True if the model is a path that the administrator of the node allows.
bool allows_path_of(const Worker& worker, const api::EdgeNode* node);
/// Path of version `version` of the worker's model in the container; "" without any.
std::string model_path(const Worker& worker, const std::string& version);

}  // namespace varda::controllers::workers

#include "controllers/federatedlearning/participants.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codec/digest.h"
#include "controllers/dataset/dataset.h"
#include "controllers/runs/runs.h"

namespace varda::controllers::federatedlearning {

namespace {

using api::FederatedDataset;
using api::FederatedLearningJob;
using api::FederatedLearningJobStatus;
using api::FederatedTrainingWorker;
using codec::Json;
using hosting::Problem;
using runs::NamedDatasets;

constexpr std::size_t kNamesShown = 3;  // of Datasets, in a message

struct NamedDataset {
  std::string name, group, node;
};

/// Calls `visit(view)` for both Datasets of the name that exist.
template <typename Visit>
void each_view(const NamedDatasets& named, Visit visit) {
  if (named.edgeai != nullptr && !named.edgeai->metadata.deleting())
    visit(dataset::view(*named.edgeai));
  if (named.sedna != nullptr && !named.sedna->metadata.deleting())
    visit(dataset::view(*named.sedna));
}

/// Datasets with the labels of `wanted`; all if it has no selector.
std::vector<NamedDataset> matching(const FederatedDataset& wanted, const FederatedWorld& world) {
  std::vector<NamedDataset> out;
  meta::LabelSelector selector;
  if (wanted.selector) {
    auto compiled = wanted.selector->compiled();
    if (!compiled.ok()) return out;  // an object that no server validated
    selector = std::move(*compiled);
  }
  for (const auto& [name, named] : world.datasets) {
    each_view(named, [&](const dataset::DatasetView& view) {
      const std::string& group = view.resource.group;
      if (!wanted.group.empty() && wanted.group != group) return;
      if (selector.matches(view.metadata.labels))
        out.push_back({view.metadata.name, group, view.spec.node_name});
    });
  }
  return out;
}

std::string names_text(const std::vector<NamedDataset>& datasets) {
  std::string out;
  for (std::size_t i = 0; i < std::min(datasets.size(), kNamesShown); ++i)
    out += (i == 0 ? "" : ", ") + datasets[i].name;
  return datasets.size() > kNamesShown ? out + " ..." : out;
}

struct DataChoice {
  std::string name;
  std::optional<runs::DatasetOnNode> data;
  std::optional<Problem> problem;
};

/// The Dataset of `wanted` on the agent's node. Nothing: a worker of the user needs none.
enum class Need { kRequired, kOptional };
DataChoice choose_data(const FederatedDataset& wanted, Need need, const FederatedWorld& world,
                       const api::EdgeNode& agent, runs::Started started) {
  DataChoice out;
  api::TrainingDataset reference;
  if (!wanted.name.empty()) {
    reference.name = wanted.name;
    reference.group = wanted.group;
  } else {
    std::vector<NamedDataset> here = matching(wanted, world);
    const std::string& node = agent.metadata.name;
    std::erase_if(here, [&](const NamedDataset& one) { return one.node != node; });
    if (here.empty() && need == Need::kOptional) return out;
    if (here.empty()) {
      out.problem =
          Problem{"DatasetNotFound", "node " + node + " has no Dataset" +
                                         (wanted.selector ? " that matches dataset.selector" : "")};
      return out;
    }
    if (here.size() > 1) {
      out.problem =
          Problem{"DatasetAmbiguous", "node " + node + " has " + std::to_string(here.size()) +
                                          " Datasets that match: " + names_text(here) +
                                          "; set dataset.selector so that one matches"};
      return out;
    }
    reference.name = here.front().name;
    reference.group = here.front().group;
  }
  out.name = reference.name;
  const auto found = world.datasets.find(reference.name);
  runs::DatasetChoice choice = runs::choose_dataset(
      reference, found == world.datasets.end() ? NamedDatasets{} : found->second, agent, started);
  out.data = std::move(choice.dataset);
  out.problem = std::move(choice.problem);
  return out;
}

std::string identity_of(const FederatedTrainingWorker& entry) {
  Json out = Json::object();
  if (!entry.node().empty()) out.set("node", entry.node());
  if (entry.dataset) {
    out.set("dataset", entry.dataset->name);
    out.set("group", entry.dataset->group);
    if (entry.dataset->selector) {
      const auto selector = entry.dataset->selector->compiled();
      out.set("selector", selector.ok() ? selector->str() : "");
    }
  }
  return codec::Sha256::of(codec::write_json(out)).hex().substr(0, 8);
}

class Finder {
 public:
  Finder(const FederatedLearningJob& job, const FederatedWorld& world) : job_(job), world_(world) {}

  Participants find() {
    const std::vector<std::string> names = worker_names(job_.spec);
    for (std::size_t i = 0; i < names.size(); ++i)
      add_entry(job_.spec.training_workers[i], names[i]);
    if (dropped_ > 0) {
      out_.problems.push_back(
          {"TooManyNodes",
           "a job has at most " + std::to_string(FederatedLearningJobStatus::kParticipantsMax) +
               " training workers: " + std::to_string(dropped_) + " have no place"});
    }
    return std::move(out_);
  }

 private:
  void add_entry(const FederatedTrainingWorker& entry, const std::string& name) {
    for (const std::string& node : nodes_of(entry, name)) {
      for (std::int64_t number = 0; number < entry.replicas.value_or(1); ++number)
        add(entry, replica_name(name, number), node);
    }
  }

  std::vector<std::string> nodes_of(const FederatedTrainingWorker& entry, const std::string& name) {
    if (!entry.node().empty()) return {entry.node()};
    if (entry.selector) {
      workers::Worker worker;
      worker.name = name;
      worker.selector = entry.selector;
      workers::WorkerNodes nodes = workers::nodes_of(worker, world_.nodes);
      if (nodes.problem) out_.problems.push_back(std::move(*nodes.problem));
      return std::move(nodes.names);
    }
    return nodes_of_data(entry);
  }

  std::vector<std::string> nodes_of_data(const FederatedTrainingWorker& entry) {
    std::set<std::string> nodes;
    const FederatedDataset& wanted = *entry.dataset;
    if (wanted.name.empty()) {
      for (const NamedDataset& one : matching(wanted, world_)) nodes.insert(one.node);
    } else if (const auto found = world_.datasets.find(wanted.name);
               found != world_.datasets.end()) {
      each_view(found->second, [&](const dataset::DatasetView& view) {
        if (wanted.group.empty() || wanted.group == view.resource.group)
          nodes.insert(view.spec.node_name);
      });
    }
    nodes.erase("");
    if (nodes.empty()) {
      out_.problems.push_back(
          {"DatasetNotFound", wanted.name.empty()
                                  ? "no Dataset matches dataset.selector"
                                  : "there is no Dataset " + wanted.name + " with a nodeName"});
    }
    return {nodes.begin(), nodes.end()};
  }

  void add(const FederatedTrainingWorker& entry, const std::string& name, const std::string& node) {
    if (out_.list.size() >= FederatedLearningJobStatus::kParticipantsMax) {
      ++dropped_;
      return;
    }
    Participant one;
    one.entry = &entry;
    one.worker.name = name;
    one.worker.node_name = node;
    one.pod = workers::worker_pod_name(job_of(job_), one.worker, node, 0);
    find_data(one);
    // Two entries with the same data on one node would count the data twice.
    const bool twice =
        is_ours(entry) && !one.dataset.empty() && !ours_.emplace(node, one.dataset).second;
    if (twice && !one.problem)
      one.problem = Problem{"DatasetUsed", "another training worker of node " + node +
                                               " already trains on Dataset " + one.dataset};
    out_.list.push_back(std::move(one));
  }

  void find_data(Participant& one) const {
    const std::string& node = one.worker.node_name;
    if (hosting::find_node(world_.nodes, node) == nullptr) {
      one.problem = Problem{"NodeNotFound", "node " + node + " does not exist"};
      return;
    }
    const workers::EdgeNodePtr agent = world_.edge_node(node);
    one.problem = runs::agent_problem(agent.get(), node);
    if (one.problem) return;
    const bool has_pod = std::any_of(world_.pods.begin(), world_.pods.end(), [&](const auto& pod) {
      return pod->metadata.name == one.pod;
    });
    const runs::Started started = has_pod ? runs::Started::kYes : runs::Started::kNo;
    const FederatedTrainingWorker& entry = *one.entry;
    const Need need = is_ours(entry) || entry.dataset ? Need::kRequired : Need::kOptional;
    if (entry.dataset || entry.selector) {
      DataChoice choice =
          choose_data(entry.dataset.value_or(FederatedDataset{}), need, world_, *agent, started);
      one.dataset = std::move(choice.name);
      one.data = std::move(choice.data);
      one.problem = std::move(choice.problem);
    }
    const Json& evaluation = job_.spec.federated.at("evaluation/dataset");
    if (one.problem || !evaluation.is_object()) return;
    DataChoice choice =
        choose_data(evaluation_of(evaluation), Need::kRequired, world_, *agent, started);
    one.evaluation = std::move(choice.data);
    one.problem = std::move(choice.problem);
  }

  static FederatedDataset evaluation_of(const Json& dataset) {
    FederatedDataset out;
    out.name = dataset["name"].as_string();
    out.group = dataset["group"].as_string();
    if (!out.name.empty()) return out;
    api::NodeSelection& selection = out.selector.emplace();
    for (const auto& [key, value] : dataset.at("selector/matchLabels").as_object())
      selection.match_labels[key] = value.as_string();
    for (const Json& one : dataset.at("selector/matchExpressions").as_array()) {
      api::SelectorRequirement& requirement = selection.match_expressions.emplace_back();
      requirement.key = one["key"].as_string();
      requirement.op = one["operator"].as_string();
      for (const Json& value : one["values"].as_array())
        requirement.values.push_back(value.as_string());
    }
    return out;
  }

  const FederatedLearningJob& job_;
  const FederatedWorld& world_;
  std::set<std::pair<std::string, std::string>> ours_;  // node and Dataset
  std::size_t dropped_ = 0;
  Participants out_;
};

}  // namespace

std::vector<std::string> worker_names(const api::FederatedLearningJobSpec& spec) {
  std::vector<std::string> out;
  std::map<std::string, int> seen;
  for (const FederatedTrainingWorker& entry : spec.training_workers) {
    const std::string name = std::string(kTrainerName) + "-" + identity_of(entry);
    const int number = ++seen[name];
    out.push_back(number == 1 ? name : name + "x" + std::to_string(number));
  }
  return out;
}

std::string replica_name(const std::string& worker, std::int64_t number) {
  return number == 0 ? worker : worker + "-" + std::to_string(number);
}

Participants find_participants(const FederatedLearningJob& job, const FederatedWorld& world) {
  return Finder(job, world).find();
}

}  // namespace varda::controllers::federatedlearning

#include "controllers/inferencemodel/model_choice.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "hosting/chosen_model.h"
#include "hosting/model_archive.h"
#include "meta/selector.h"

namespace varda::controllers::inferencemodel {

namespace {

using api::InferenceModel;
using hosting::AnyModel;

// Earlier archives to keep while the node's state is unknown.
constexpr std::size_t kEarlierMax = 6;

// A Model that can be served.
struct Servable {
  api::EdgeModelVersion archive;
  std::string framework;  // by the Model's format
};
struct Serving {
  std::optional<Servable> servable;
  std::optional<hosting::Problem> problem;
};

Serving servable_of(const AnyModel& candidate, const InferenceModel& model, const World& world,
                    const hosting::Options& options) {
  hosting::ModelArchive found = hosting::archive_of(candidate, world.keys.get());
  if (found.problem) return {{}, std::move(found.problem)};
  Servable out{std::move(*found.archive), hosting::framework_of_file(*candidate.spec)};
  const std::string& framework =
      model.spec.framework_type.empty() ? out.framework : model.spec.framework_type;
  if (framework.empty())
    return {
        {},
        hosting::Problem{"ModelUnsupported",
                         "Model " + candidate.metadata->name +
                             (candidate.spec->format.empty()
                                  ? " has no format, and the file's suffix"
                                  : " has the format \"" + candidate.spec->format + "\", which") +
                             " names no framework: set frameworkType"}};
  if (auto problem = framework_problem(framework, options)) return {{}, std::move(problem)};
  return {std::move(out), {}};
}

// The archives of earlier choices. Before the first choice, those of the node: the model may have
// had a manifest.
std::vector<api::ManifestEntry> earlier_versions(const InferenceModel& model,
                                                 const api::EdgeNode* node) {
  if (model.status.model_ref) return model.status.model_ref->versions;
  const api::EdgeModel* assigned =
      node == nullptr ? nullptr : node->spec.find_model(model.metadata.key().str());
  std::vector<api::ManifestEntry> versions;
  if (assigned == nullptr) return versions;
  for (const api::EdgeModelVersion& archive : assigned->versions)
    versions.push_back(hosting::entry_of(archive));
  return versions;
}

// Appends the chosen archive to earlier ones that the node may still need: those that it exposes or
// serves, and one for a rollback, preferably one that it has.
std::vector<api::ManifestEntry> versions_with(const api::EdgeModelVersion& chosen,
                                              const InferenceModel& model,
                                              const api::EdgeNode* node) {
  if (!model.spec.on_edge()) return {hosting::entry_of(chosen)};
  std::vector<api::ManifestEntry> versions = earlier_versions(model, node);
  std::erase_if(versions,
                [&](const api::ManifestEntry& one) { return one.version == chosen.version; });
  const api::EdgeModelReport* report =
      node == nullptr ? nullptr : node->status.find_model(model.metadata.key().str());
  if (report != nullptr) {
    const auto in_use = [&](const api::ManifestEntry& one) {
      return one.version == report->exposed ||
             (report->serving && one.version == report->serving->version);
    };
    const auto present = [&](const api::ManifestEntry& one) {
      const api::EdgeVersionReport* version = report->find_version(one.version);
      return version != nullptr && version->state == api::EdgeVersionReport::kReady;
    };
    std::string rollback;
    bool has_rollback = false;
    for (const api::ManifestEntry& one : versions) {
      if (in_use(one) || (has_rollback && !present(one))) continue;
      rollback = one.version;
      has_rollback = present(one);
    }
    std::erase_if(versions, [&](const api::ManifestEntry& one) {
      return !in_use(one) && one.version != rollback;
    });
  } else if (versions.size() > kEarlierMax) {  // the node's state is unknown
    versions.erase(std::find_if(versions.begin(), versions.end(), [&](const auto& one) {
      return one.version != model.status.serving_version;
    }));
  }
  versions.push_back(hosting::entry_of(chosen));
  return versions;
}

// Adds the archive of a version on trial before the chosen one, which stays the last.
void hold(const api::EdgeModelVersion& archive, const std::string& signature,
          api::ChosenModel& choice) {
  std::erase_if(choice.versions,
                [&](const api::ManifestEntry& one) { return one.version == archive.version; });
  if (choice.versions.empty()) return;
  if (choice.versions.size() > kEarlierMax) choice.versions.erase(choice.versions.begin());
  api::ManifestEntry entry = hosting::entry_of(archive);
  entry.signature = signature;
  choice.versions.insert(choice.versions.end() - 1, std::move(entry));
}

bool is_chosen(const AnyModel& candidate, const InferenceModel& model) {
  const auto& chosen = model.status.model_ref;
  return chosen && chosen->group == candidate.group && chosen->name == candidate.metadata->name;
}

ModelChoice choice_of(const AnyModel& candidate, const Servable& servable, std::string message,
                      const InferenceModel& model, const World& world) {
  ModelChoice out;
  api::ChosenModel& choice = out.chosen.emplace();
  choice.group = candidate.group;
  choice.name = candidate.metadata->name;
  choice.version = servable.archive.version;
  choice.framework_type = servable.framework;
  choice.message = std::move(message);
  choice.versions = versions_with(servable.archive, model, world.edge_node.get());
  choice.versions.back().signature = candidate.spec->signature;
  return out;
}

ModelChoice last_choice(const InferenceModel& model, hosting::Problem problem) {
  ModelChoice out{model.status.model_ref, std::move(problem)};
  if (out.chosen) out.chosen->message = "kept: " + out.problem->message;
  return out;
}

// ---- by name

ModelChoice choose_named(const InferenceModel& model, const World& world,
                         const hosting::Options& options) {
  const api::ModelRef& ref = *model.spec.model_ref;
  hosting::AnyModels named = world.referred;
  std::erase_if(named, [&](const AnyModel& one) { return one.metadata->name != ref.name; });
  const hosting::FoundModel found = hosting::find_model(named, ref.group);
  if (found.problem) return last_choice(model, *found.problem);
  if (!found.model)
    return last_choice(
        model, {"ModelNotFound", "there is no Model " + ref.name +
                                     (ref.group.empty() ? "" : " of the group " + ref.group)});
  const std::string present = hosting::version_of(
      *found.model->spec, api::known_sha256(*found.model->spec, *found.model->status));
  if (!ref.version.empty() && ref.version != present) {
    const std::string changed = "Model " + ref.name + " has version " + present;
    if (is_chosen(*found.model, model) && model.status.model_ref->version == ref.version) {
      ModelChoice out{model.status.model_ref, {}};
      out.chosen->message =
          "version " + ref.version + " stays, because modelRef names it; " + changed + " now";
      if (model.spec.trial && model.spec.trial->version == present) {
        const Serving serving = servable_of(*found.model, model, world, options);
        if (serving.servable)
          hold(serving.servable->archive, found.model->spec->signature, *out.chosen);
      }
      return out;
    }
    return last_choice(model,
                       {"ModelNotFound", changed + ", and modelRef names version " + ref.version});
  }
  const Serving serving = servable_of(*found.model, model, world, options);
  if (serving.problem) return last_choice(model, *serving.problem);
  return choice_of(*found.model, *serving.servable, "modelRef names the Model", model, world);
}

// ---- by a selector

struct Candidate {
  const AnyModel* model;
  double value;      // of the metric
  std::string text;  // of the metric
};

std::optional<double> finite(const std::string& text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(out)) return {};
  return out;
}

std::optional<Candidate> match(const AnyModel& model, const api::ModelSelector& selector) {
  if (!selector.task.empty() && model.spec->task != selector.task) return {};
  if (!meta::LabelSelector::equals(selector.labels).matches(model.metadata->labels)) return {};
  const api::ModelMetric* metric = model.status->find_metric(selector.metric);
  const auto value = metric == nullptr ? std::nullopt : finite(metric->value);
  if (!value || *value < selector.at_least.value_or(*value) ||
      *value > selector.at_most.value_or(*value))
    return {};
  return Candidate{&model, *value, metric->value};
}

// The Models that match, the best first. The present choice comes before equally good ones, so that
// the choice does not alternate.
std::vector<Candidate> matching(const InferenceModel& model, const api::ModelSelector& selector,
                                const hosting::AnyModels& models) {
  std::vector<Candidate> out;
  for (const AnyModel& one : models) {
    if (auto candidate = match(one, selector)) out.push_back(std::move(*candidate));
  }
  const bool least_first = selector.order == api::ModelSelector::kMin;
  const auto rank = [&](const Candidate& one) {
    return std::tuple(least_first ? one.value : -one.value, !is_chosen(*one.model, model),
                      one.model->metadata->name, one.model->group);
  };
  std::sort(out.begin(), out.end(),
            [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
  return out;
}

ModelChoice choose_best(const InferenceModel& model, const World& world,
                        const hosting::Options& options) {
  const api::ModelSelector& selector = *model.spec.model_ref->selector;
  const std::vector<Candidate> candidates = matching(model, selector, world.referred);
  if (candidates.empty())
    return last_choice(model, {"ModelNotFound", "no Model of namespace " + model.metadata.ns +
                                                    " matches modelRef.selector"});
  std::optional<hosting::Problem> problem;  // of the best candidate
  for (const Candidate& one : candidates) {
    Serving serving = servable_of(*one.model, model, world, options);
    if (serving.problem) {
      // The former archive of the chosen Model still serves, and the problem may pass: the digest
      // of a new file is being read.
      if (is_chosen(*one.model, model)) return last_choice(model, std::move(*serving.problem));
      if (!problem) problem = std::move(serving.problem);
      continue;
    }
    std::string message = selector.metric + " " + one.text;
    if (candidates.size() == 1) {
      message += "; no other Model matches";
    } else {
      message +=
          selector.order == api::ModelSelector::kMin ? " is the lowest of " : " is the highest of ";
      message += problem ? "the Models that can be served; skipped: " + problem->message
                         : std::to_string(candidates.size()) + " Models that match";
    }
    return choice_of(*one.model, *serving.servable, std::move(message), model, world);
  }
  return last_choice(model, std::move(*problem));
}

}  // namespace

std::optional<hosting::Problem> framework_problem(const std::string& framework,
                                                  const hosting::Options& options) {
  if (options.servers.contains(framework)) return {};
  const std::string known =
      join(options.servers, ", ", [](const auto& entry) { return entry.first; });
  return hosting::Problem{
      "FrameworkUnsupported",
      "the operator has no server for frameworkType " + framework + " (it has: " + known +
          "): add one with --servers FILE of `varda up` or `varda operator`, or "
          "give an image"};
}

bool may_choose(const api::ModelRef& ref, const AnyModel& model) {
  if (ref.selector) return match(model, *ref.selector).has_value();
  return ref.name == model.metadata->name && (ref.group.empty() || ref.group == model.group);
}

ModelChoice choose_model(const InferenceModel& model, const World& world,
                         const hosting::Options& options) {
  return model.spec.model_ref->selector ? choose_best(model, world, options)
                                        : choose_named(model, world, options);
}

}  // namespace varda::controllers::inferencemodel

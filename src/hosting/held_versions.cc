#include "hosting/held_versions.h"

#include <algorithm>
#include <set>

namespace varda::hosting {

namespace {

// True: a version of some model has no room on the node's disk, or within its limit.
bool lacks_room(const api::EdgeNode& node) {
  return std::any_of(
      node.status.models.begin(), node.status.models.end(), [](const api::EdgeModelReport& model) {
        return std::any_of(model.versions.begin(), model.versions.end(),
                           [](const api::EdgeVersionReport& version) {
                             return version.state == api::EdgeVersionReport::kFailed &&
                                    version.reason == "DiskFull";
                           });
      });
}

}  // namespace

std::vector<api::EdgeModelVersion> archives_of(const api::InferenceModel& model,
                                               const ModelKeys* keys) {
  std::vector<api::EdgeModelVersion> archives;
  for (const api::ManifestEntry& entry : model.spec.manifest) {
    if (signature_problem(model, entry, keys)) continue;
    api::EdgeModelVersion& version = archives.emplace_back();
    version.version = entry.version;
    version.url = entry.download_url;
    version.sha256 = entry.sha256sum;
    version.mirrors = entry.mirrors;
    if (entry.credentials)
      version.credentials = model.metadata.ns + "/" + entry.credentials->secret_name;
  }
  return archives;
}

std::vector<api::EdgeModelVersion> versions_to_hold(
    std::string_view key, const std::vector<api::EdgeModelVersion>& archives,
    const std::string& target, const api::EdgeNode& node, const std::string& trial) {
  const api::EdgeModelReport* report = node.status.find_model(key);
  std::set<std::string> wanted{target};
  if (!trial.empty()) wanted.insert(trial);
  if (report != nullptr) {
    if (!report->exposed.empty()) wanted.insert(report->exposed);
    if (report->serving && !report->serving->version.empty())
      wanted.insert(report->serving->version);
    const bool cramped = lacks_room(node);
    for (auto archive = archives.rbegin(); archive != archives.rend() && !cramped; ++archive) {
      const api::EdgeVersionReport* version = report->find_version(archive->version);
      if (version == nullptr || version->state != api::EdgeVersionReport::kReady ||
          wanted.contains(archive->version))
        continue;
      wanted.insert(archive->version);
      break;
    }
  }
  std::vector<api::EdgeModelVersion> held;
  for (const api::EdgeModelVersion& archive : archives) {
    if (wanted.contains(archive.version)) held.push_back(archive);
  }
  return held;
}

}  // namespace varda::hosting

#include "hosting/model_archive.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "api/ai/inference_model.h"
#include "net/url.h"

namespace varda::hosting {

namespace {

// Enough digits to distinguish versions of one model; valid for directories and labels.
constexpr std::size_t kVersionDigits = 12;
// Limits of EdgeNode.spec.models.
constexpr std::size_t kFetchedUrlMax = 2048;
constexpr std::size_t kVersionMax = 63;
constexpr std::string_view kSchemes[] = {"http://", "https://", "s3://", "file:///"};

// A version names a directory on nodes and in containers.
bool is_version_name(std::string_view version) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !version.empty() && version.size() <= kVersionMax && version.front() != '.' &&
         version != "target" && std::all_of(version.begin(), version.end(), is_allowed);
}

bool is_path(std::string_view url) { return url.starts_with("/") || url.starts_with("file://"); }

// "/data/a b" -> "file:///data/a%20b"
std::string file_url(std::string_view path) {
  std::string url = "file://";
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    url += net::percent_encode(path.substr(at, end - at));
    if (end < path.size()) url += '/';
    at = end + 1;
  }
  return url;
}

// "https://f/a.onnx?x=1" -> "onnx"; "": none
std::string suffix_of(std::string_view url) {
  const std::string_view path = url.substr(0, url.find_first_of("?#"));
  const std::string_view file = path.substr(path.rfind('/') + 1);
  const std::size_t dot = file.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(file.substr(dot + 1));
}

ModelArchive no_archive(std::string reason, std::string message) {
  return {{}, Problem{std::move(reason), std::move(message)}};
}

}  // namespace

AnyModels named_models(const meta::ObjectKey& key, const runtime::Caches& caches) {
  AnyModels named;
  const auto add = [&](const auto& model) {
    if (model != nullptr && !model->metadata.deleting()) named.push_back(any_model(model));
  };
  add(caches.of<api::Model>().get(key));
  add(caches.of<api::SednaModel>().get(key));
  return named;
}

FoundModel find_model(const AnyModels& named, std::string_view group) {
  FoundModel found;
  for (const AnyModel& model : named) {
    if (!group.empty() && model.group != group) continue;
    if (found.model)
      return {{},
              Problem{"ModelAmbiguous", "Model " + model.metadata->name + " exists in " +
                                            found.model->group + " and in " + model.group +
                                            ": set the group of the reference"}};
    found.model = model;
  }
  return found;
}

std::string version_of(const api::ModelSpec& spec, std::string_view sha256) {
  if (!spec.version.empty()) return spec.version;
  return sha256.empty() ? "1" : std::string(sha256.substr(0, kVersionDigits));
}

std::optional<std::string> no_version_name(const std::string& version) {
  if (is_version_name(version)) return {};
  return "the version \"" + version.substr(0, kVersionMax) +
         "\": it must be 1 to 63 letters, digits, '.', '_' or '-', not begin with '.', and not be "
         "\"target\"";
}

std::optional<std::string> no_fetched_url(const std::string& url) {
  if (url.size() > kFetchedUrlMax)
    return "a url of " + std::to_string(url.size()) + " characters: must be no more than " +
           std::to_string(kFetchedUrlMax) + " characters";
  const bool known = std::any_of(std::begin(kSchemes), std::end(kSchemes),
                                 [&](std::string_view scheme) { return url.starts_with(scheme); });
  if (known && url.find(' ') == std::string::npos) return {};
  return "the url \"" + url + "\": must be an http, https, s3 or file URL";
}

std::string fetched_url(const std::string& url) {
  return url.starts_with("/") ? file_url(url) : url;
}

ModelArchive archive_of(const AnyModel& model, const ModelKeys* keys) {
  const api::ModelSpec& spec = *model.spec;
  const std::string subject = "Model " + model.metadata->name;
  ModelArchive out;
  api::EdgeModelVersion& archive = out.archive.emplace();
  archive.sha256 = api::known_sha256(spec, *model.status);
  archive.version = version_of(spec, archive.sha256);
  if (const auto wrong = no_version_name(archive.version))
    return no_archive("ModelUnsupported", subject + " has " + *wrong);
  if (archive.sha256.empty()) {
    if (const auto* pinned = meta::find_condition(model.status->conditions, "Pinned"))
      return no_archive("DigestMissing", subject + ": " + pinned->message);
    return no_archive(
        "DigestMissing",
        subject + (is_path(spec.url) ? " has a path as url and no sha256, which verifies the file; "
                                       "`sha256sum` prints the digest. With spec.nodeName that "
                                       "node reads the digest"
                                     : " has no sha256, which verifies the download; `varda pack` "
                                       "prints the digest"));
  }
  archive.url = fetched_url(spec.url);
  if (const auto wrong = no_fetched_url(archive.url))
    return no_archive("ModelUnsupported", subject + " has " + *wrong);
  if (keys != nullptr) {
    if (const auto refusal = keys->refusal({.model = model.metadata->name,
                                            .version = archive.version,
                                            .sha256 = archive.sha256,
                                            .signature = spec.signature}))
      return no_archive(refusal->reason, subject + ": " + refusal->message);
  }
  if (!spec.credential_name.empty())
    archive.credentials = model.metadata->ns + "/" + spec.credential_name;
  return out;
}

std::string framework_of_file(const api::ModelSpec& spec) {
  std::string name = spec.format.empty() ? suffix_of(spec.url) : spec.format;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto& known = api::known_frameworks();
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  static constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"savedmodel", "tensorflow"},
      {"saved_model", "tensorflow"},
      {"pt", "pytorch"},
      {"pth", "pytorch"},
      {"h5", "keras"},
      {"plan", "tensorrt"},
      {"caffemodel", "caffe"},
      {"pdmodel", "paddle"},
  };
  for (const auto& [one, framework] : kFormats) {
    if (one == name) return std::string(framework);
  }
  return "";
}

}  // namespace varda::hosting

#include "controllers/runs/result.h"

#include <algorithm>
#include <utility>

#include "meta/object.h"

namespace varda::controllers::runs {

namespace {

constexpr std::size_t kDefaultVersionDigits = 12;

std::string url_of(const ResultStore& store, const ReportedArtifact& file,
                   const std::string& name) {
  if (!store.bucket_url.empty())
    return api::EdgeBucket::url_of(store.bucket_url, file.sha256, file.name);
  std::string url = store.registry_url;
  while (url.ends_with('/')) url.pop_back();
  url += "/v1/blobs/sha256:" + file.sha256;
  return name.empty() ? url : url + "/" + name;
}

const api::ModelMetric* metric_in(const std::vector<api::ModelMetric>& metrics,
                                  const std::string& key) {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const api::ModelMetric& one) { return one.key == key; });
  return found == metrics.end() ? nullptr : &*found;
}

}  // namespace

api::TrainingProduced produced_of(const ReportedResult& result, const std::string& version,
                                  const ResultStore& store) {
  const ReportedArtifact& file = *result.file;
  api::TrainingProduced out;
  out.version = version.empty() ? file.sha256.substr(0, kDefaultVersionDigits) : version;
  out.sha256 = file.sha256;
  out.url = url_of(store, file, result.file_name);
  out.bytes = file.bytes;
  out.report_url = url_of(result.report, store, "report.html");
  return out;
}

std::string url_of(const std::optional<ReportedArtifact>& file, const ResultStore& store,
                   const std::string& name) {
  if (!file || file->state != "Uploaded" || file->sha256.empty()) return "";
  return url_of(store, *file, name);
}

Json to_object(const ModelOfRun& model) {
  const bool sedna = model.group == api::SednaModel::resource().group;
  const meta::Resource& resource = sedna ? api::SednaModel::resource() : api::Model::resource();
  Json metadata = Json::object();
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) metadata.set(name, value);
  };
  for (const auto& [name, value] : model.metadata) add(name, value);
  Json out = Json::object({{sedna ? "url" : "modelUrl", model.produced.url},
                           {"format", model.format.empty() ? "onnx" : model.format},
                           {"sha256", model.produced.sha256}});
  if (model.produced.bytes > 0) out.set("size", model.produced.bytes);
  out.set("version", model.produced.version);
  out.set("sourceJob", model.source_job);
  if (!model.credentials.empty()) out.set("credentialName", model.credentials);
  if (model.base) {
    add("baseVersion", model.base->archive.version);
    add("baseSha256", model.base->archive.sha256sum);
    if (model.base->kind == api::ModelReference::kModel && model.base->name != model.name)
      out.set("parents", Json::array({model.base->name}));
  }
  if (!metadata.empty()) out.set("metadata", std::move(metadata));
  return Json::object({{"apiVersion", resource.api_version()},
                       {"kind", resource.kind},
                       {"metadata", Json::object({{"name", model.name}, {"namespace", model.ns}})},
                       {"spec", std::move(out)}});
}

bool has_result(const hosting::AnyModel& model, const api::TrainingProduced& produced,
                const std::vector<api::ModelMetric>& metrics) {
  return model.spec->sha256 == produced.sha256 && model.spec->version == produced.version &&
         model.spec->url == produced.url &&
         std::all_of(metrics.begin(), metrics.end(), [&](const auto& metric) {
           const api::ModelMetric* found = metric_in(model.status->metrics, metric.key);
           return found != nullptr && found->value == metric.value;
         });
}

void set_metrics(Json& model, const std::vector<api::ModelMetric>& metrics, WallTime now) {
  Json list = Json::array();
  for (const api::ModelMetric& metric : metrics)
    list.push_back(Json::object({{"key", metric.key}, {"value", metric.value}}));
  Json& target = model.make("status");
  target.set("metrics", std::move(list));
  target.set("updateTime", meta::format_time(now));
}

}  // namespace varda::controllers::runs

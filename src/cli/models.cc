#include "cli/models.h"

#include <algorithm>

#include "meta/object.h"

namespace varda::cli {

namespace {

const meta::Resource kGroups[] = {{"edgeai.io", "v1alpha1", "Model", "models", true},
                                  {"sedna.io", "v1alpha1", "Model", "models", true}};

std::string or_none(const Json& value) {
  return value.is_string() && !value.as_string().empty() ? harmless(value.as_string()) : "<none>";
}

std::string metrics_of(const Json& model) {
  std::string out;
  for (const Json& metric : model.at("status/metrics").as_array()) {
    out += (out.empty() ? "" : ",") + harmless(metric["key"].as_string()) + "=" +
           harmless(metric["value"].as_string());
  }
  return out.empty() ? "<none>" : out;
}

std::string age_of(const Json& model, WallTime now) {
  const auto time = meta::parse_time(model.at("status/updateTime").as_string());
  if (!time.ok()) return "<none>";
  return meta::format_age(std::chrono::duration_cast<std::chrono::seconds>(
      std::max(now - *time, WallTime::duration::zero())));
}

std::string table(const std::vector<Json>& models, const Session& session,
                  const ListModelsOptions& options) {
  const bool wide = options.output.form == Output::Form::kWide;
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& ns, std::vector<std::string> cells,
                       const std::vector<std::string>& more) {
    if (session.all_namespaces) cells.insert(cells.begin(), ns);
    if (wide) cells.insert(cells.end(), more.begin(), more.end());
    rows.push_back(std::move(cells));
  };
  if (options.headers)
    add("NAMESPACE", {"NAME", "GROUP", "TASK", "FORMAT", "METRICS", "UPDATED"},
        {"VERSION", "SIZE", "JOB", "URL"});
  const WallTime now = system_clock().wall();
  for (const Json& model : models) {
    const Json& spec = model["spec"];
    const std::string& version = model["apiVersion"].as_string();
    add(model.at("metadata/namespace").as_string(),
        {model.at("metadata/name").as_string(), version.substr(0, version.find('/')),
         or_none(spec["task"]), or_none(spec["format"]), metrics_of(model), age_of(model, now)},
        {or_none(spec["version"]),
         spec["size"].is_number() ? codec::write_json(spec["size"]) : "<none>",
         or_none(spec["sourceJob"]),
         or_none(spec.contains("modelUrl") ? spec["modelUrl"] : spec["url"])});
  }
  return align(rows);
}

}  // namespace

Status list_models(const Context& ctx, Session& session, const ListModelsOptions& options) {
  TRY(const ModelQuery query,
      ModelQuery::parse(options.where, options.sort_by, options.shorthands));
  std::vector<Json> models;
  std::size_t groups = 0;
  for (const meta::Resource& resource : kGroups) {
    auto list = session.client.list_all(
        ctx, resource,
        {.ns = session.namespace_of(resource), .label_selector = options.label_selector});
    if (!list.ok() && list.error().code() == Code::kNotFound) continue;
    TRY(kube::List found, std::move(list));
    ++groups;
    for (Json& item : found.items) models.push_back(std::move(item));
  }
  if (groups == 0)
    return Error(Code::kNotFound,
                 "the server has no kind Model: install the CRDs in deploy/crds (`varda up` "
                 "installs them automatically)");
  const bool any = !models.empty();
  models = query.select(std::move(models));
  if (!options.output.table()) {
    Json items = Json::array();
    for (Json& model : models) items.push_back(std::move(model));
    TRY(const std::string text,
        print_object(
            Json::object({{"apiVersion", "v1"}, {"kind", "List"}, {"items", std::move(items)}}),
            options.output));
    session.out(text);
    return {};
  }
  if (models.empty()) {
    const std::string where = session.all_namespaces ? "" : " in namespace " + session.ns;
    session.error(any ? "No Model" + where + " matches\n" : "No resources found" + where + "\n");
    return {};
  }
  session.out(table(models, session, options));
  return {};
}

}  // namespace varda::cli

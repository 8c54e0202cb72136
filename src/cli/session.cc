#include "cli/session.h"

#include <algorithm>

#include "base/text.h"
#include "codec/yaml.h"

namespace varda::cli {
namespace {

Status add_documents(const std::string& where, std::string_view text, std::vector<Json>& out) {
  TRY(const std::vector<Json> documents, codec::parse_yaml_stream(text).context(where));
  for (const Json& document : documents) {
    if (document["items"].is_array() && document["kind"].string_or("List").ends_with("List")) {
      for (const Json& item : document["items"].as_array()) out.push_back(item);
    } else if (!document.is_object() || document["kind"].as_string().empty() ||
               document["apiVersion"].as_string().empty()) {
      return Error(Code::kInvalid, where + ": an object needs apiVersion and kind (document " +
                                       std::to_string(out.size() + 1) + ")");
    } else {
      out.push_back(document);
    }
  }
  return {};
}

}  // namespace

Result<const kube::Discovery*> Session::discovery(const Context& ctx) {
  if (!discovery_) {
    TRY(discovery_, kube::Discovery::load(ctx, client));
  }
  return &*discovery_;
}

std::string Session::namespace_of(const meta::Resource& resource) const {
  return resource.namespaced && !all_namespaces ? ns : std::string();
}

Result<std::vector<Target>> parse_targets(const Context& ctx, Session& session,
                                          const std::vector<std::string>& arguments) {
  if (arguments.empty())
    return Error(Code::kInvalid,
                 "name a resource like \"pods\" or \"inferencemodels\", or TYPE/NAME");
  TRY(const kube::Discovery* discovery, session.discovery(ctx));
  std::vector<Target> out;
  if (arguments[0].find('/') != std::string::npos) {
    for (const std::string& argument : arguments) {
      const auto slash = argument.find('/');
      if (slash == std::string::npos || slash + 1 == argument.size()) {
        return Error(Code::kInvalid,
                     "\"" + argument + "\": either all arguments or none must be TYPE/NAME");
      }
      TRY(kube::ApiResource resource, discovery->find(argument.substr(0, slash)));
      out.push_back({std::move(resource), {argument.substr(slash + 1)}});
    }
    return out;
  }
  const std::vector<std::string> names(arguments.begin() + 1, arguments.end());
  for (const std::string_view type : split(arguments[0], ',')) {
    auto resource = discovery->find(type);
    if (resource.ok()) {
      out.push_back({*resource, names});
    } else if (auto category = discovery->category(type); !category.empty() && names.empty()) {
      for (kube::ApiResource& member : category) {
        if (member.can("list")) out.push_back({std::move(member), {}});
      }
    } else {
      return resource.error();
    }
  }
  if (out.size() > 1 && !names.empty())
    return Error(Code::kInvalid, "names cannot follow several resources; use TYPE/NAME for each");
  return out;
}

Result<std::vector<Named>> parse_names(const Context& ctx, Session& session,
                                       const std::vector<std::string>& arguments) {
  TRY(const std::vector<Target> targets, parse_targets(ctx, session, arguments));
  std::vector<Named> out;
  for (const Target& target : targets) {
    if (target.names.empty())
      return Error(Code::kInvalid, "name an object: " + target.resource.singular + "/NAME");
    for (const std::string& name : target.names) {
      out.push_back(
          {target.resource, {target.resource.resource.namespaced ? session.ns : "", name}});
    }
  }
  return out;
}

Result<std::vector<Json>> read_manifests(Session& session, const std::vector<std::string>& paths) {
  if (paths.empty())
    return Error(Code::kInvalid,
                 "give the objects with -f FILE, a folder, or -f - for standard input");
  std::vector<Json> out;
  for (const std::string& path : paths) {
    if (path == "-") {
      TRY(const std::string text, session.read_input());
      TRY_VOID(add_documents("standard input", text, out));
      continue;
    }
    if (path.find("://") != std::string::npos)
      return Error(Code::kInvalid, path + ": only local files; download it first");
    TRY(const auto info, session.fs.stat(path));
    if (!info) return Error(Code::kNotFound, path + ": no such file");
    if (info->kind != os::FileKind::kDirectory) {
      TRY(const std::string text, os::read_file(session.fs, path));
      TRY_VOID(add_documents(path, text, out));
      continue;
    }
    TRY(const auto names, session.fs.list(path));
    for (const std::string& name : names) {
      if (!name.ends_with(".yaml") && !name.ends_with(".yml") && !name.ends_with(".json")) continue;
      TRY(const std::string text, os::read_file(session.fs, os::Path(path) / name));
      TRY_VOID(add_documents(path + "/" + name, text, out));
    }
  }
  if (out.empty()) return Error(Code::kInvalid, "no objects found in " + paths[0]);
  return out;
}

Result<Named> locate(const Context& ctx, Session& session, const Json& object) {
  TRY(const kube::Discovery* discovery, session.discovery(ctx));
  TRY(kube::ApiResource resource,
      discovery->of(object["apiVersion"].as_string(), object["kind"].as_string()));
  const Json& metadata = object["metadata"];
  const std::string& name = metadata["name"].as_string();
  if (name.empty()) return Error(Code::kInvalid, "metadata.name is required");
  std::string ns =
      resource.resource.namespaced ? metadata["namespace"].string_or(session.ns) : std::string();
  return Named{std::move(resource), {std::move(ns), name}};
}

std::string spelled(const kube::ApiResource& resource, std::string_view name) {
  const std::string kind = resource.resource.group.empty()
                               ? resource.singular
                               : resource.singular + "." + resource.resource.group;
  return kind + "/" + std::string(name);
}

}  // namespace varda::cli

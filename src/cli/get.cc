#include <algorithm>
#include <optional>

#include "cli/verbs.h"
#include "meta/object.h"
#include "meta/resources.h"
#include "net/url.h"

namespace varda::cli {
namespace {

constexpr std::string_view kTableAccept =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

std::string query(const GetOptions& options) {
  std::string out;
  const auto add = [&](std::string_view key, const std::string& value) {
    if (value.empty()) return;
    out += out.empty() ? '?' : '&';
    out.append(key).append("=").append(net::percent_encode(value));
  };
  add("labelSelector", options.label_selector);
  add("fieldSelector", options.field_selector);
  return out;
}

/// A listing as a Table. With a name, a missing object is NotFound.
Result<Json> fetch_table(const Context& ctx, Session& session, const Target& target,
                         const std::string& name, const GetOptions& options) {
  const meta::Resource& r = target.resource.resource;
  const std::string ns = session.namespace_of(r);
  if (name.empty())
    return session.client.json(ctx, "GET", r.path(net::percent_encode(ns)) + query(options),
                               nullptr, "", kTableAccept);
  return session.client.json(ctx, "GET", r.path(net::percent_encode(ns), net::percent_encode(name)),
                             nullptr, "", kTableAccept);
}

/// `columns` receives the column widths, for the changes of a watch.
Status get_tables(const Context& ctx, Session& session, const std::vector<Target>& targets,
                  const GetOptions& options, std::vector<std::size_t>& columns) {
  bool nothing = true;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    std::vector<std::string> names = target.names;
    if (names.empty()) names.push_back("");
    Json joined;
    for (const std::string& name : names) {
      TRY(Json table, fetch_table(ctx, session, target, name, options));
      if (joined.is_null()) {
        joined = std::move(table);
      } else {
        for (const Json& row : table["rows"].as_array()) joined["rows"].push_back(row);
      }
    }
    if (joined["rows"].empty()) continue;
    if (!nothing) session.out("\n");
    nothing = false;
    columns.clear();
    session.out(
        print_table(joined,
                    {.wide = options.output.form == Output::Form::kWide,
                     .headers = options.headers,
                     .namespaces = session.all_namespaces && target.resource.resource.namespaced,
                     .name_prefix = targets.size() > 1 ? spelled(target.resource, "") : ""},
                    columns));
  }
  if (nothing && !options.watch) {
    const bool namespaced = std::any_of(targets.begin(), targets.end(), [](const Target& t) {
      return t.resource.resource.namespaced;
    });
    session.error(session.all_namespaces || !namespaced
                      ? "No resources found\n"
                      : "No resources found in namespace " + session.ns + "\n");
  }
  return {};
}

Status get_objects(const Context& ctx, Session& session, const std::vector<Target>& targets,
                   const GetOptions& options) {
  Json items = Json::array();
  bool single = targets.size() == 1 && targets[0].names.size() == 1;
  for (const Target& target : targets) {
    const meta::Resource& r = target.resource.resource;
    if (target.names.empty()) {
      TRY(kube::List list, session.client.list_all(ctx, r,
                                                   {.ns = session.namespace_of(r),
                                                    .label_selector = options.label_selector,
                                                    .field_selector = options.field_selector}));
      for (Json& item : list.items) items.push_back(std::move(item));
    }
    for (const std::string& name : target.names) {
      TRY(Json item, session.client.get(ctx, r, {session.namespace_of(r), name}));
      items.push_back(std::move(item));
    }
  }
  const Json shown = single ? items.as_array()[0]
                            : Json::object({{"apiVersion", "v1"},
                                            {"kind", "List"},
                                            {"metadata", Json::object()},
                                            {"items", items}});
  TRY(const std::string text, print_object(shown, options.output));
  session.out(text);
  if (options.output.form == Output::Form::kJsonPath && !text.ends_with('\n')) session.out("\n");
  return {};
}

/// Prints a line (or document) for every change of one resource.
Status follow(const Context& ctx, Session& session, const Target& target, const GetOptions& options,
              std::vector<std::size_t>& columns) {
  const meta::Resource& r = target.resource.resource;
  const std::string name = target.names.empty() ? "" : target.names[0];
  kube::WatchOptions watch{
      .ns = session.namespace_of(r),
      .label_selector = options.label_selector,
      .field_selector = name.empty() ? options.field_selector : "metadata.name=" + name};
  TRY(const kube::List now, session.client.list_all(ctx, r,
                                                    {.ns = watch.ns,
                                                     .label_selector = watch.label_selector,
                                                     .field_selector = watch.field_selector}));
  watch.resource_version = now.resource_version;
  while (!ctx.done()) {
    TRY(const auto stream, session.client.watch(ctx, r, watch));
    for (;;) {
      auto event = stream->next();
      if (!event.ok()) {
        if (ctx.stopped()) return {};
        if (event.error().code() == Code::kTimeout || event.error().code() == Code::kUnavailable)
          break;
        return std::move(event).error();
      }
      if (!*event) break;
      watch.resource_version = (*event)->resource_version;
      if ((*event)->type == kube::WatchEvent::Type::kBookmark) continue;
      const Json& object = (*event)->object;
      if (!options.output.table()) {
        TRY(const std::string text, print_object(object, options.output));
        session.out(text);
        continue;
      }
      if ((*event)->type == kube::WatchEvent::Type::kDeleted) {
        session.out(object.at("metadata/name").as_string() + "   deleted\n");
        continue;
      }
      auto table = session.client.json(ctx, "GET",
                                       r.path(object.at("metadata/namespace").as_string(),
                                              object.at("metadata/name").as_string()),
                                       nullptr, "", kTableAccept);
      if (!table.ok()) continue;  // deleted meanwhile; its event follows
      // Only the first line has headers.
      session.out(print_table(*table,
                              {.wide = options.output.form == Output::Form::kWide,
                               .headers = options.headers && columns.empty(),
                               .namespaces = session.all_namespaces && r.namespaced},
                              columns));
    }
  }
  return {};
}

}  // namespace

Status get(const Context& ctx, Session& session, const GetOptions& options) {
  TRY(const std::vector<Target> targets, parse_targets(ctx, session, options.arguments));
  if (options.watch && (targets.size() != 1 || targets[0].names.size() > 1)) {
    return Error(Code::kInvalid, "--watch follows one resource, or one object");
  }
  std::vector<std::size_t> columns;
  if (options.output.table()) {
    TRY_VOID(get_tables(ctx, session, targets, options, columns));
  } else {
    TRY_VOID(get_objects(ctx, session, targets, options));
  }
  return options.watch ? follow(ctx, session, targets[0], options, columns) : Status();
}

Status describe_objects(const Context& ctx, Session& session,
                        const std::vector<std::string>& arguments,
                        const std::string& label_selector) {
  TRY(const std::vector<Target> targets, parse_targets(ctx, session, arguments));
  bool first = true;
  for (const Target& target : targets) {
    const meta::Resource& r = target.resource.resource;
    std::vector<Json> objects;
    for (const std::string& name : target.names) {
      TRY(Json object, session.client.get(ctx, r, {session.namespace_of(r), name}));
      objects.push_back(std::move(object));
    }
    if (target.names.empty()) {
      TRY(kube::List list,
          session.client.list_all(
              ctx, r, {.ns = session.namespace_of(r), .label_selector = label_selector}));
      objects = std::move(list.items);
    }
    for (const Json& object : objects) {
      const std::string& ns = object.at("metadata/namespace").as_string();
      auto events = session.client.list_all(
          ctx, meta::core::events(),
          {.ns = ns.empty() ? "default" : ns,
           .field_selector = "involvedObject.name=" + object.at("metadata/name").as_string() +
                             ",involvedObject.kind=" + object["kind"].as_string()});
      if (!first) session.out("\n\n");
      first = false;
      session.out(describe(object, events.ok() ? events->items : std::vector<Json>(),
                           system_clock().wall()));
    }
  }
  if (first) session.error("No resources found\n");
  return {};
}

}  // namespace varda::cli

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "cli/verbs.h"
#include "meta/object.h"
#include "meta/resources.h"
#include "meta/selector.h"
#include "net/url.h"

namespace varda::cli {
namespace {

std::string log_path(const meta::ObjectKey& pod, const LogsOptions& options) {
  std::string out =
      meta::core::pods().path(net::percent_encode(pod.ns), net::percent_encode(pod.name)) + "/log";
  char next = '?';
  const auto add = [&](const std::string& text) {
    out += next + text;
    next = '&';
  };
  if (!options.container.empty()) add("container=" + net::percent_encode(options.container));
  if (options.follow) add("follow=true");
  if (options.previous) add("previous=true");
  if (options.timestamps) add("timestamps=true");
  if (options.tail) add("tailLines=" + std::to_string(*options.tail));
  return out;
}

/// Copies one log to `write`, in whole lines, until the log ends.
Status stream_log(const Context& ctx, const kube::Client& client, const meta::ObjectKey& pod,
                  const LogsOptions& options, const std::function<void(std::string_view)>& write) {
  TRY(net::ClientResponse response, client.open(ctx, "GET", log_path(pod, options)));
  std::string pending;
  for (;;) {
    auto piece = response.body->read();
    if (!piece.ok()) {
      if (ctx.stopped()) return {};
      return std::move(piece).error();
    }
    if (!*piece) break;
    pending += **piece;
    const auto end = pending.rfind('\n');
    if (end == std::string::npos) continue;
    write(std::string_view(pending).substr(0, end + 1));
    pending.erase(0, end + 1);
  }
  if (!pending.empty()) write(pending + "\n");
  return {};
}

std::string prefixed(std::string_view lines, const std::string& prefix) {
  std::string out;
  for (std::size_t from = 0; from < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', from), lines.size() - 1);
    out += prefix;
    out += lines.substr(from, end + 1 - from);
    from = end + 1;
  }
  return out;
}

/// Pods of an object: by its label selector, or by the edgeai.io/inference-model label.
Result<std::vector<meta::ObjectKey>> pods_of(const Context& ctx, Session& session,
                                             const Named& object) {
  TRY(const Json owner, session.client.get(ctx, object.resource.resource, object.key));
  std::string selector;
  if (owner.at("spec/selector").is_object() && !owner.at("spec/selector").empty()) {
    // A Service's selector is a plain map; others are LabelSelectors.
    const Json& raw = owner.at("spec/selector");
    const bool plain = !raw.contains("matchLabels") && !raw.contains("matchExpressions");
    TRY(const meta::LabelSelector parsed,
        meta::LabelSelector::from_json(plain ? Json::object({{"matchLabels", raw}}) : raw));
    selector = parsed.str();
  } else {
    selector = "edgeai.io/inference-model=" + object.key.name;
  }
  TRY(const kube::List list,
      session.client.list_all(ctx, meta::core::pods(),
                              {.ns = object.key.ns, .label_selector = selector}));
  std::vector<meta::ObjectKey> out;
  for (const Json& pod : list.items)
    out.push_back({pod.at("metadata/namespace").as_string(), pod.at("metadata/name").as_string()});
  if (out.empty())
    return Error(Code::kNotFound, spelled(object.resource, object.key.name) +
                                      " has no pods; `varda describe` shows the reason");
  return out;
}

}  // namespace

Status logs(const Context& ctx, Session& session, const LogsOptions& options) {
  std::vector<meta::ObjectKey> pods;
  if (options.target.find('/') == std::string::npos) {
    pods.push_back({session.ns, options.target});
  } else {
    TRY(const std::vector<Named> named, parse_names(ctx, session, {options.target}));
    if (named[0].resource.resource == meta::core::pods()) {
      pods.push_back(named[0].key);
    } else {
      TRY(pods, pods_of(ctx, session, named[0]));
    }
  }
  if (pods.size() == 1) return stream_log(ctx, session.client, pods[0], options, session.out);

  std::mutex writing;
  std::vector<Status> results(pods.size());
  const auto copy = [&](std::size_t i) {
    results[i] = stream_log(ctx, session.client, pods[i], options, [&](std::string_view lines) {
      const std::string text = prefixed(lines, "[" + pods[i].name + "] ");
      const std::lock_guard lock(writing);
      session.out(text);
    });
  };
  if (options.follow) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < pods.size(); ++i) threads.emplace_back(copy, i);
  } else {
    for (std::size_t i = 0; i < pods.size(); ++i) copy(i);
  }
  for (Status& result : results) TRY_VOID(std::move(result));
  return {};
}

Status events(const Context& ctx, Session& session, const EventsOptions& options) {
  std::string selector;
  if (!options.for_token.empty()) {
    TRY(const std::vector<Named> named, parse_names(ctx, session, {options.for_token}));
    const meta::Resource& resource = named[0].resource.resource;
    selector = "involvedObject.name=" + named[0].key.name + ",involvedObject.kind=" + resource.kind;
    // Two groups may have kinds of the same name. Kubelets omit the version of core kinds.
    if (!resource.group.empty()) selector += ",involvedObject.apiVersion=" + resource.api_version();
  }
  const std::string ns = session.namespace_of(meta::core::events());
  TRY(kube::List list,
      session.client.list_all(ctx, meta::core::events(), {.ns = ns, .field_selector = selector}));
  std::stable_sort(list.items.begin(), list.items.end(), earlier_event);
  const auto row = [&](const Json& e) -> std::vector<std::string> {
    auto then = meta::parse_time(last_seen(e).as_string());
    const auto age = then.ok() ? meta::format_age(std::chrono::duration_cast<std::chrono::seconds>(
                                     system_clock().wall() - *then))
                               : "<unknown>";
    const std::string kind = lower(e.at("involvedObject/kind").as_string());
    return {age, harmless(e["type"].as_string()), harmless(e["reason"].as_string()),
            harmless(kind + "/" + e.at("involvedObject/name").as_string()),
            harmless(e["message"].as_string())};
  };
  std::vector<std::vector<std::string>> rows = {
      {"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"}};
  for (const Json& e : list.items) rows.push_back(row(e));
  if (rows.size() == 1 && !options.watch) {
    session.error("No events found\n");
    return {};
  }
  std::vector<std::size_t> columns;
  session.out(align(rows, columns));
  if (!options.watch) return {};
  std::string version = list.resource_version;
  while (!ctx.done()) {
    TRY(const auto stream,
        session.client.watch(ctx, meta::core::events(),
                             {.ns = ns, .field_selector = selector, .resource_version = version}));
    for (;;) {
      auto event = stream->next();
      if (!event.ok() || !*event) {
        if (!event.ok() && event.error().code() == Code::kGone) return std::move(event).error();
        break;
      }
      version = (*event)->resource_version;
      using Type = kube::WatchEvent::Type;
      if ((*event)->type == Type::kAdded || (*event)->type == Type::kModified)
        session.out(align({row((*event)->object)}, columns));
    }
  }
  return {};
}

}  // namespace varda::cli

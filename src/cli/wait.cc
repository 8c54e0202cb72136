#include "base/text.h"
#include "cli/verbs.h"

namespace varda::cli {
namespace {

/// A parsed condition to wait for.
struct Wanted {
  enum class What { kCondition, kDeleted, kJsonPath } what = What::kCondition;
  std::string name;  // of the condition, or the JSONPath
  std::string value = "True";
};

Result<Wanted> parse(const std::string& text) {
  if (text == "delete") return Wanted{.what = Wanted::What::kDeleted};
  if (text.rfind("condition=", 0) == 0) {
    Wanted out{.name = text.substr(10)};
    if (const auto equals = out.name.find('='); equals != std::string::npos) {
      out.value = out.name.substr(equals + 1);
      out.name.resize(equals);
    }
    if (!out.name.empty()) return out;
  }
  if (text.rfind("jsonpath=", 0) == 0) {
    const auto close = text.rfind("}=");
    if (close != std::string::npos) {
      return Wanted{.what = Wanted::What::kJsonPath,
                    .name = text.substr(9, close + 1 - 9),
                    .value = text.substr(close + 2)};
    }
  }
  return Error(
      Code::kInvalid,
      "--for takes condition=NAME[=VALUE], delete, or jsonpath={PATH}=VALUE, not \"" + text + "\"");
}

Result<bool> fulfilled(const Wanted& wanted, const Json& object) {
  if (wanted.what == Wanted::What::kDeleted) return false;
  if (wanted.what == Wanted::What::kJsonPath) {
    TRY(const std::string text, evaluate_jsonpath(wanted.name, object));
    return text == wanted.value;
  }
  const std::int64_t generation = object.at("metadata/generation").as_integer();
  for (const Json& c : object.at("status/conditions").as_array()) {
    if (lower(c["type"].as_string()) != lower(wanted.name)) continue;
    // Ignores conditions about an older spec.
    const std::int64_t observed =
        c.contains("observedGeneration")
            ? c["observedGeneration"].as_integer()
            : object.at("status/observedGeneration").as_integer(generation);
    return lower(c["status"].as_string()) == lower(wanted.value) && observed >= generation;
  }
  return false;
}

/// Message or reason of the unmet condition; "" if absent.
std::string reason_of(const Wanted& wanted, const Json& object) {
  if (wanted.what != Wanted::What::kCondition) return "";
  for (const Json& c : object.at("status/conditions").as_array())
    if (lower(c["type"].as_string()) == lower(wanted.name))
      return c["message"].string_or(c["reason"].as_string());
  return "";
}

std::string conditions_of(const Json& object) {
  std::string out;
  for (const Json& c : object.at("status/conditions").as_array()) {
    out += "\n  " + c["type"].as_string() + "=" + c["status"].as_string() + " " +
           c["reason"].as_string();
    if (!c["message"].as_string().empty()) out += ": " + c["message"].as_string();
  }
  return out.empty() ? " (no conditions yet)" : out;
}

std::string finalizers_of(const Json& object) {
  std::string out;
  for (const Json& name : object.at("metadata/finalizers").as_array())
    out += (out.empty() ? "; these finalizers are not done: " : ", ") + name.as_string();
  return out;
}

/// `uid`, if set: a new object with the same name counts as deleted. `limit` is `ctx` with the wait
/// timeout; the first request ignores that timeout.
Status wait_one(const Context& ctx, const Context& limit, Session& session, const Named& object,
                const Wanted& wanted, const std::string& uid = "") {
  const meta::Resource& r = object.resource.resource;
  Json last;
  std::string shown;
  const auto show_reason = [&] {
    const std::string reason = session.terminal ? reason_of(wanted, last) : "";
    if (!reason.empty() && reason != shown)
      session.error(spelled(object.resource, object.key.name) + ": " + reason + "\n");
    shown = reason;
  };
  for (;;) {
    // List, then watch from that version, so that no change is missed.
    auto list = session.client.list(
        ctx, r, {.ns = object.key.ns, .field_selector = "metadata.name=" + object.key.name});
    if (!list.ok()) return std::move(list).error();
    if (list->items.empty()) {
      if (wanted.what == Wanted::What::kDeleted) return {};
      return Error(Code::kNotFound, spelled(object.resource, object.key.name) + " not found");
    }
    last = list->items[0];
    if (!uid.empty() && std::as_const(last).at("metadata/uid").as_string() != uid) return {};
    TRY(bool good, fulfilled(wanted, last));
    if (good) return {};
    show_reason();
    auto stream = session.client.watch(limit, r,
                                       {.ns = object.key.ns,
                                        .field_selector = "metadata.name=" + object.key.name,
                                        .resource_version = list->resource_version});
    for (; stream.ok();) {
      auto event = (*stream)->next();
      if (!event.ok() || !*event) break;
      if ((*event)->type == kube::WatchEvent::Type::kBookmark) continue;
      if ((*event)->type == kube::WatchEvent::Type::kDeleted) {
        if (wanted.what == Wanted::What::kDeleted) return {};
        return Error(Code::kNotFound, spelled(object.resource, object.key.name) + " was deleted");
      }
      last = (*event)->object;
      if (!uid.empty() && std::as_const(last).at("metadata/uid").as_string() != uid) return {};
      TRY(good, fulfilled(wanted, last));
      if (good) return {};
      show_reason();
    }
    TRY_VOID(ctx.check());
    if (limit.expired()) {
      return Error(
          Code::kTimeout,
          "timed out waiting for " + spelled(object.resource, object.key.name) +
              (wanted.what == Wanted::What::kDeleted ? " to be gone" + finalizers_of(last)
                                                     : "; its conditions:" + conditions_of(last)));
    }
    TRY_VOID(ctx.sleep_for(std::chrono::milliseconds(200)));
  }
}

}  // namespace

Status wait(const Context& ctx, Session& session, const WaitOptions& options) {
  TRY(const Wanted wanted, parse(options.condition));
  std::vector<Named> objects;
  if (options.all || !options.label_selector.empty()) {
    TRY(const std::vector<Target> targets, parse_targets(ctx, session, options.arguments));
    for (const Target& target : targets) {
      const meta::Resource& r = target.resource.resource;
      TRY(const kube::List list,
          session.client.list_all(
              ctx, r, {.ns = session.namespace_of(r), .label_selector = options.label_selector}));
      for (const Json& item : list.items) {
        objects.push_back(
            {target.resource,
             {item.at("metadata/namespace").as_string(), item.at("metadata/name").as_string()}});
      }
    }
    if (objects.empty()) return Error(Code::kNotFound, "no matching resources found");
  } else {
    TRY(objects, parse_names(ctx, session, options.arguments));
  }
  const Context limit = ctx.with_timeout(options.timeout);
  for (const Named& object : objects) {
    TRY_VOID(wait_one(ctx, limit, session, object, wanted));
    session.out(spelled(object.resource, object.key.name) +
                (wanted.what == Wanted::What::kDeleted ? " deleted\n" : " condition met\n"));
  }
  return {};
}

Status remove(const Context& ctx, Session& session, const DeleteCommand& command) {
  std::vector<Named> objects;
  if (!command.files.empty() && !command.arguments.empty()) {
    return Error(Code::kInvalid, "-f and names exclude each other");
  }
  if (command.all && !command.label_selector.empty())
    return Error(Code::kInvalid, "--all and --selector exclude each other");
  if (!command.files.empty()) {
    TRY(const std::vector<Json> manifests, read_manifests(session, command.files));
    // Deletes in reverse order, because later objects depend on earlier ones.
    for (auto it = manifests.rbegin(); it != manifests.rend(); ++it) {
      TRY(Named where, locate(ctx, session, *it));
      objects.push_back(std::move(where));
    }
  } else if (command.all || !command.label_selector.empty()) {
    TRY(const std::vector<Target> targets, parse_targets(ctx, session, command.arguments));
    for (const Target& target : targets) {
      const meta::Resource& r = target.resource.resource;
      TRY(const kube::List list,
          session.client.list_all(
              ctx, r, {.ns = session.namespace_of(r), .label_selector = command.label_selector}));
      for (const Json& item : list.items) {
        objects.push_back(
            {target.resource,
             {item.at("metadata/namespace").as_string(), item.at("metadata/name").as_string()}});
      }
    }
    if (objects.empty()) session.error("No resources found\n");
  } else {
    TRY(objects, parse_names(ctx, session, command.arguments));
  }
  Status first;
  std::vector<std::pair<Named, std::string>>
      deleted;  // with uid, because a controller may recreate the name
  for (const Named& object : objects) {
    // Like kubectl: the API server's default would keep the pods of a Job.
    auto removed = session.client.remove(ctx, object.resource.resource, object.key,
                                         {.propagation = kube::Propagation::kBackground});
    if (removed.ok()) {
      session.out(spelled(object.resource, object.key.name) + " deleted\n");
      const Json& answer = *removed;  // the object, or a Status about it
      deleted.emplace_back(
          object, answer.at("metadata/uid").string_or(answer.at("details/uid").as_string()));
    } else if (!(removed.error().code() == Code::kNotFound && command.ignore_not_found)) {
      if (!first.ok()) session.error("error: " + first.error().message() + "\n");
      first = std::move(removed).error();
    }
  }
  if (command.wait) {
    const Context limit = ctx.with_timeout(command.timeout);
    for (const auto& [object, uid] : deleted)
      TRY_VOID(wait_one(ctx, limit, session, object, {.what = Wanted::What::kDeleted}, uid));
  }
  return first;
}

}  // namespace varda::cli

// The verbs, like kubectl's of the same names. All block until done or until the context is done.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/printer.h"
#include "cli/session.h"

namespace varda::cli {

/// Creates or updates every object with a three-way merge of last applied, wanted and live state.
/// Uses kubectl's annotation, so that both tools work on one object. Continues after errors and
/// returns the first one.
Status apply(const Context& ctx, Session& session, const std::vector<std::string>& files);

struct GetOptions {
  std::vector<std::string> arguments;
  Output output;
  std::string label_selector, field_selector;
  bool watch = false;  // then follow changes until the context is done
  bool headers = true;
};
Status get(const Context& ctx, Session& session, const GetOptions& options);

Status describe_objects(const Context& ctx, Session& session,
                        const std::vector<std::string>& arguments,
                        const std::string& label_selector);

struct DeleteCommand {
  std::vector<std::string> arguments;
  std::vector<std::string> files;
  std::string label_selector;
  bool all = false;
  bool ignore_not_found = false;
  bool wait = true;                          // until the objects are gone
  std::chrono::milliseconds timeout{30000};  // of the wait
};
Status remove(const Context& ctx, Session& session, const DeleteCommand& command);

struct LogsOptions {
  std::string target;  // "POD", "pod/POD", or "TYPE/NAME" of an owner of pods
  std::string container;
  bool follow = false, previous = false, timestamps = false;
  std::optional<int> tail;
};
/// For an InferenceModel or Deployment: the logs of its pods, with the pod's name as prefix of each
/// line.
Status logs(const Context& ctx, Session& session, const LogsOptions& options);

struct EventsOptions {
  std::string for_token;  // "TYPE/NAME": only events of that object
  bool watch = false;
};
Status events(const Context& ctx, Session& session, const EventsOptions& options);

struct WaitOptions {
  std::vector<std::string> arguments;
  std::string
      condition;  // "condition=Ready", "condition=Ready=False", "delete", "jsonpath={.status.x}=y"
  std::string label_selector;
  bool all = false;
  std::chrono::milliseconds timeout{30000};  // for all objects; 0 checks once
};
/// Waits until all objects meet the condition. kTimeout: the message names the object and its
/// conditions. On a terminal, prints the condition's message at every change.
Status wait(const Context& ctx, Session& session, const WaitOptions& options);

struct PatchOptions {
  std::vector<std::string> arguments;
  std::string patch;           // JSON or YAML
  std::string type = "merge";  // merge, json, strategic
};
Status patch(const Context& ctx, Session& session, const PatchOptions& options);

/// Prints the server's resources with short names, as accepted by the other verbs.
Status api_resources(const Context& ctx, Session& session);

/// Sets spec.replicas through the scale subresource.
Status scale(const Context& ctx, Session& session, const std::vector<std::string>& arguments,
             int replicas);

}  // namespace varda::cli

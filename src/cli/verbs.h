// The verbs: each does what kubectl's of that name does. All block until done or the context is.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/printer.h"
#include "cli/session.h"

namespace varda::cli {

/// Creates or updates every object: last applied, wanted and live are merged, with the annotation kubectl uses, so that both can be
/// used on one object. Goes on after an error with the others; the first error is returned.
Status apply(const Context& ctx, Session& session, const std::vector<std::string>& files);

struct GetOptions {
  std::vector<std::string> words;
  Output output;
  std::string label_selector, field_selector;
  bool watch = false;  // then goes on with changes until the context is done
  bool headers = true;
};
Status get(const Context& ctx, Session& session, const GetOptions& options);

Status describe_objects(const Context& ctx, Session& session, const std::vector<std::string>& words,
                        const std::string& label_selector);

struct DeleteCommand {
  std::vector<std::string> words;
  std::vector<std::string> files;
  std::string label_selector;
  bool all = false;
  bool ignore_not_found = false;
  bool wait = true;                          // until they are gone
  std::chrono::milliseconds timeout{30000};  // of that wait
};
Status remove(const Context& ctx, Session& session, const DeleteCommand& command);

struct LogsOptions {
  std::string word;  // "POD", "pod/POD", or "TYPE/NAME" of what owns pods
  std::string container;
  bool follow = false, previous = false, timestamps = false;
  std::optional<int> tail;
};
/// Of an InferenceModel or Deployment: the logs of its pods, each line with the pod's name before it.
Status logs(const Context& ctx, Session& session, const LogsOptions& options);

struct EventsOptions {
  std::string for_word;  // "TYPE/NAME": of that object only
  bool watch = false;
};
Status events(const Context& ctx, Session& session, const EventsOptions& options);

struct WaitOptions {
  std::vector<std::string> words;
  std::string condition;  // "condition=Ready", "condition=Ready=False", "delete", "jsonpath={.status.x}=y"
  std::string label_selector;
  bool all = false;
  std::chrono::milliseconds timeout{30000};  // for all of them; 0 looks once
};
/// Until every named object fulfils it. kTimeout says which one did not, and what its conditions say. On a terminal the message of
/// the condition is told whenever it changes.
Status wait(const Context& ctx, Session& session, const WaitOptions& options);

struct PatchOptions {
  std::vector<std::string> words;
  std::string patch;           // JSON or YAML
  std::string type = "merge";  // merge, json, strategic
};
Status patch(const Context& ctx, Session& session, const PatchOptions& options);

/// What the server has: a table of resources with their short names, and the words that get and the others take.
Status api_resources(const Context& ctx, Session& session);

/// spec.replicas through the scale subresource.
Status scale(const Context& ctx, Session& session, const std::vector<std::string>& words, int replicas);

}  // namespace varda::cli

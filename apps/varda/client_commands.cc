// Subcommands that use an API server. This file has the flags; room cli does the work.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <unistd.h>

#include "cli/verbs.h"
#include "client_session.h"
#include "command.h"
#include "duration.h"
#include "kube/config.h"

namespace varda::app {
namespace {

/// Values of the flags of all client subcommands.
struct ClientFlags {
  std::string ns;
  bool all_namespaces = false;
  std::vector<std::string> arguments, files;
  std::string output, label_selector, field_selector, container, condition, patch,
      patch_type = "merge", for_token, timeout = "30s";
  bool watch = false, follow = false, previous = false, timestamps = false, all = false,
       ignore_not_found = false, no_headers = false;
  bool wait = true;
  int tail = -1, replicas = -1;
};

Result<std::string> read_all_input() {
  if (isatty(STDIN_FILENO)) std::fprintf(stderr, "reading standard input; end it with Ctrl-D\n");
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

using Verb = std::function<Status(const Context&, cli::Session&, const ClientFlags&)>;

}  // namespace

Status with_session(const Context& ctx, const Globals& globals, const SessionFlags& flags,
                    const std::function<Status(const Context&, cli::Session&)>& work) {
  TRY_VOID(set_up_logs(globals, log::Level::kWarn));
  TRY(const kube::Config config, find_server(globals));
  const std::unique_ptr<kube::Client> client = kube::connect(config);
  cli::Session session(
      *client, os::real_file_system(),
      [](std::string_view text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
      },
      [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); },
      read_all_input);
  session.terminal = isatty(STDERR_FILENO) != 0;
  session.ns = !flags.ns.empty() ? flags.ns : config.ns;
  session.all_namespaces = flags.all_namespaces;
  Status status = work(ctx, session);
  if (!status.ok() && status.error().code() == Code::kUnavailable &&
      status.error().message().find("connect") != std::string::npos) {
    return std::move(status).error().context("the server at " + config.server +
                                             " does not answer (is `varda up` running?)");
  }
  return status;
}

Result<kube::Config> find_server(const Globals& globals) {
  auto config = kube::find_config(globals.kubeconfig, default_kubeconfig());
  if (!config.ok() && config.error().code() == Code::kForbidden) {
    return Error(Code::kForbidden, config.error().message() +
                                       "; run the command as the user that started `varda up`, or "
                                       "name another file with --kubeconfig");
  }
  if (config.ok() || config.error().message().find("varda up") != std::string::npos) return config;
  const Error& error = config.error();
  return Error(
      error.code(),
      error.message() +
          "; `varda up` starts a server on this machine and prints where its kubeconfig is");
}

void add_client_commands(Program program) {
  const auto flags = std::make_shared<ClientFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  const auto add = [&](const char* name, const char* what, Verb verb) {
    CLI::App* command = program.parser.add_subcommand(name, what);
    command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
    command->add_option("-n,--namespace", flags->ns,
                        "namespace; default: the kubeconfig's, else \"default\"");
    command->callback([&globals, &chosen, flags, verb = std::move(verb)] {
      chosen = [&globals, flags, verb](const Context& ctx) {
        return with_session(
            ctx, globals, {.ns = flags->ns, .all_namespaces = flags->all_namespaces},
            [&](const Context& c, cli::Session& session) { return verb(c, session, *flags); });
      };
    });
    return command;
  };

  CLI::App* apply = add("apply", "create or update objects from files",
                        [](const Context& ctx, cli::Session& s, const ClientFlags& f) {
                          return cli::apply(ctx, s, f.files);
                        });
  apply->add_option("-f,--filename", flags->files, "a file, a folder, or - for standard input")
      ->required();

  CLI::App* get = add("get", "list or show objects",
                      [](const Context& ctx, cli::Session& s, const ClientFlags& f) -> Status {
                        TRY(const cli::Output output, cli::Output::parse(f.output));
                        return cli::get(ctx, s,
                                        {.arguments = f.arguments,
                                         .output = output,
                                         .label_selector = f.label_selector,
                                         .field_selector = f.field_selector,
                                         .watch = f.watch,
                                         .headers = !f.no_headers});
                      });
  get->add_option("resource", flags->arguments, "TYPE[,TYPE] [NAME…] or TYPE/NAME…")->required();
  get->add_option("-o,--output", flags->output, "wide, yaml, json, name or jsonpath=TEMPLATE");
  get->add_option("-l,--selector", flags->label_selector, "label selector");
  get->add_option("--field-selector", flags->field_selector, "field selector");
  get->add_flag("-w,--watch", flags->watch, "print changes until stopped");
  get->add_flag("-A,--all-namespaces", flags->all_namespaces, "in every namespace");
  get->add_flag("--no-headers", flags->no_headers, "only the rows");

  CLI::App* describe = add("describe", "show objects with their conditions and events",
                           [](const Context& ctx, cli::Session& s, const ClientFlags& f) {
                             return cli::describe_objects(ctx, s, f.arguments, f.label_selector);
                           });
  describe->add_option("resource", flags->arguments, "TYPE [NAME…] or TYPE/NAME…")->required();
  describe->add_option("-l,--selector", flags->label_selector, "label selector");

  CLI::App* remove = add("delete", "delete objects",
                         [](const Context& ctx, cli::Session& s, const ClientFlags& f) -> Status {
                           TRY(const auto timeout, parse_duration("--timeout", f.timeout));
                           return cli::remove(ctx, s,
                                              {.arguments = f.arguments,
                                               .files = f.files,
                                               .label_selector = f.label_selector,
                                               .all = f.all,
                                               .ignore_not_found = f.ignore_not_found,
                                               .wait = f.wait,
                                               .timeout = timeout});
                         });
  remove->add_option("resource", flags->arguments, "TYPE NAME… or TYPE/NAME…");
  remove->add_option("-f,--filename", flags->files, "delete the objects of these files");
  remove->add_option("-l,--selector", flags->label_selector, "label selector");
  remove->add_flag("--all", flags->all, "every object of the type");
  remove->add_flag("--ignore-not-found", flags->ignore_not_found,
                   "succeed if the object does not exist");
  remove->add_flag("--wait,!--no-wait", flags->wait, "return when the objects are gone (default)");
  remove->add_option("--timeout", flags->timeout, "maximum time to wait for the deletion")
      ->default_str("30s");

  CLI::App* logs =
      add("logs", "print what a pod's container wrote",
          [](const Context& ctx, cli::Session& s, const ClientFlags& f) {
            return cli::logs(ctx, s,
                             {.target = f.arguments.at(0),
                              .container = f.container,
                              .follow = f.follow,
                              .previous = f.previous,
                              .timestamps = f.timestamps,
                              .tail = f.tail >= 0 ? std::optional<int>(f.tail) : std::nullopt});
          });
  logs->add_option("pod", flags->arguments,
                   "POD, or TYPE/NAME of an object with pods (inferencemodel/digits)")
      ->required()
      ->expected(1);
  logs->add_option("-c,--container", flags->container,
                   "name of the container; required if the pod has several");
  logs->add_flag("-f,--follow", flags->follow, "follow the log");
  logs->add_flag("-p,--previous", flags->previous, "print the log before the last restart");
  logs->add_flag("--timestamps", flags->timestamps, "print the time of each line");
  logs->add_option("--tail", flags->tail, "only the last N lines; -1: all")
      ->check(CLI::Range(-1, 1'000'000'000));

  CLI::App* events = add("events", "list events, oldest first",
                         [](const Context& ctx, cli::Session& s, const ClientFlags& f) {
                           return cli::events(ctx, s, {.for_token = f.for_token, .watch = f.watch});
                         });
  events->add_option("--for", flags->for_token, "only events of TYPE/NAME");
  events->add_flag("-w,--watch", flags->watch, "follow new events");
  events->add_flag("-A,--all-namespaces", flags->all_namespaces, "in every namespace");

  CLI::App* wait = add("wait", "wait until objects meet a condition",
                       [](const Context& ctx, cli::Session& s, const ClientFlags& f) -> Status {
                         TRY(const auto timeout, parse_duration("--timeout", f.timeout));
                         return cli::wait(ctx, s,
                                          {.arguments = f.arguments,
                                           .condition = f.condition,
                                           .label_selector = f.label_selector,
                                           .all = f.all,
                                           .timeout = timeout});
                       });
  wait->add_option("resource", flags->arguments, "TYPE NAME… or TYPE/NAME…")->required();
  wait->add_option("--for", flags->condition,
                   "condition=NAME[=VALUE], delete, or jsonpath={PATH}=VALUE")
      ->required();
  wait->add_option("--timeout", flags->timeout, "time limit, such as 30s or 5m")
      ->default_str("30s");
  wait->add_option("-l,--selector", flags->label_selector, "label selector");
  wait->add_flag("--all", flags->all, "every object of the type");

  CLI::App* patch =
      add("patch", "change fields of objects",
          [](const Context& ctx, cli::Session& s, const ClientFlags& f) {
            return cli::patch(ctx, s,
                              {.arguments = f.arguments, .patch = f.patch, .type = f.patch_type});
          });
  patch->add_option("resource", flags->arguments, "TYPE NAME or TYPE/NAME")->required();
  patch->add_option("-p,--patch", flags->patch, "the patch, JSON or YAML")->required();
  patch->add_option("--type", flags->patch_type, "merge (default), json or strategic");

  CLI::App* scale = add("scale", "set the number of replicas",
                        [](const Context& ctx, cli::Session& s, const ClientFlags& f) {
                          return cli::scale(ctx, s, f.arguments, f.replicas);
                        });
  scale->add_option("resource", flags->arguments, "TYPE NAME or TYPE/NAME")->required();
  scale->add_option("--replicas", flags->replicas, "number of replicas")
      ->required()
      ->check(CLI::Range(0, 1'000'000));

  add("api-resources", "list the kinds of objects that the server has",
      [](const Context& ctx, cli::Session& s, const ClientFlags&) {
        return cli::api_resources(ctx, s);
      });
}

}  // namespace varda::app

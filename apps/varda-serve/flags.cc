#include "flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../config_file.h"
#include "../flag_checks.h"
#include "../help.h"

namespace varda::serve {

Parsed parse_flags(int argc, char** argv) {
  Flags flags;
  flags.defaults.instances = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  long queue_timeout_ms = 0;
  bool arena = true;

  CLI::App parser("Serves the models of a directory over the Open Inference Protocol v2 (REST).",
                  "varda-serve");
  parser.set_version_flag("-v,--version", "varda-serve " VARDA_VERSION, "print the version");
  parser.formatter(std::make_shared<app::HelpFormatter>(app::help_width()));
  parser.failure_message([](const CLI::App* app, const CLI::Error& error) {
    // An unknown flag is named first: it is more likely the cause than a missing flag.
    const std::vector<std::string> unknown = app->remaining();
    const std::string why = unknown.empty() ? error.what() : "there is no flag " + unknown.front();
    return "varda-serve: " + why + "\n`varda-serve --help` lists the flags\n";
  });
  std::string config;
  parser
      .add_option("--config", config,
                  "file with further flags, one NAME = VALUE a line; the command line wins over it")
      ->configurable(false);
  parser.option_defaults()->always_capture_default();
  parser
      .add_option("--model-repository", flags.model_repository,
                  "directory of MODEL/VERSION/… and MODEL/target; followed while serving")
      ->required();
  parser.add_option("--http", flags.http, "address of the inference API; port 0 picks a free one");
  parser.add_option(
      "--admin", flags.admin,
      "address of /healthz, /readyz and /metrics; without it, /metrics is served on --http");
  parser.add_option("--grpc", flags.grpc, "address of the gRPC API (not in this build)");
  parser
      .add_option("--cors-origin", flags.cors_origins,
                  "origin whose web pages may send requests, as https://app.example; \"*\" for all "
                  "(repeatable)")
      ->allow_extra_args(false);
  parser
      .add_option("--io-threads", flags.io_threads,
                  "threads that read and answer requests; 0: one a core, up to four")
      ->check(CLI::Range(0u, 256u));
  parser
      .add_option("--connections-max", flags.connections_max,
                  "connections at a time; beyond that, the connection whose client was silent "
                  "longest is closed")
      ->check(CLI::PositiveNumber)
      ->check(app::whole_number());
  parser
      .add_option("--connections-per-address-max", flags.connections_per_address_max,
                  "connections of one client address at a time; 0: half of --connections-max")
      ->check(app::whole_number());
  parser
      .add_option("--body-bytes-max", flags.body_bytes_max,
                  "largest request body; larger ones are answered 413")
      ->check(CLI::PositiveNumber)
      ->check(app::whole_number());
  parser
      .add_option("--bodies-bytes-max", flags.bodies_bytes_max,
                  "total bytes of request bodies larger than 64 KiB, half of them for one address; "
                  "beyond that, the slowest "
                  "request is answered 408")
      ->check(CLI::PositiveNumber)
      ->check(app::whole_number());
  parser
      .add_option("--header-bytes-max", flags.header_bytes_max,
                  "largest request header; larger ones are answered 431")
      ->check(CLI::PositiveNumber)
      ->check(app::whole_number());
  parser
      .add_option("--idle-timeout", flags.idle_timeout_seconds, "seconds a connection may lie idle")
      ->check(CLI::Range(0.1, 86400.0))
      ->check(app::finite_number());
  parser
      .add_option("--drain-delay", flags.drain_delay_seconds,
                  "seconds between \"not ready\" and the end of listening, so that proxies choose "
                  "another server")
      ->check(CLI::Range(0.0, 3600.0))
      ->check(app::finite_number());
  parser
      .add_option("--drain-timeout", flags.drain_timeout_seconds,
                  "seconds for requests in flight after --drain-delay")
      ->check(CLI::Range(0.0, 3600.0))
      ->check(app::finite_number());
  parser.add_option("--engine-path", flags.engine_path,
                    "directories with engine plug-ins, before the program's own (../lib/varda)");
  const std::string access = "Access to the inference port";
  auto* const cert = parser
                         .add_option("--tls-cert", flags.tls_cert,
                                     "PEM file of the server's certificate and its chain: serve "
                                     "HTTPS; read again when it changes, as are its "
                                     "key and --client-ca")
                         ->group(access);
  auto* const key =
      parser.add_option("--tls-key", flags.tls_key, "PEM file of the key of --tls-cert")
          ->group(access);
  cert->needs(key);
  key->needs(cert);
  parser
      .add_option("--client-ca", flags.client_ca,
                  "PEM file of an authority: clients need a certificate from this authority")
      ->needs(cert)
      ->group(access);
  parser
      .add_option("--token-file", flags.token_file,
                  "file of tokens, one a line: clients send one as \"Authorization: Bearer "
                  "TOKEN\"; read again when it changes")
      ->group(access);
  const std::string tiers = "Access to later tiers (joint inference)";
  parser
      .add_option("--tier-ca", flags.tier_ca,
                  "PEM file of the authority of tiers' certificates; default: the system's "
                  "authorities. Read again when it "
                  "changes, as is --tier-token-file. A tier that asks for a client certificate "
                  "gets the one of --tls-cert")
      ->group(tiers);
  parser
      .add_option("--tier-token-file", flags.tier_token_file,
                  "file of tokens, one a line: the first token is sent to tiers, with --tier-ca "
                  "over HTTPS only")
      ->group(tiers);
  parser.add_option("--samples-directory", flags.samples_directory,
                    "directory for kept samples, DIRECTORY/MODEL, of models with a samples.json; "
                    "without it, no request is kept");
  parser
      .add_option("--confine", flags.confine,
                  "have the kernel (Landlock) refuse every file but the model repository, engines "
                  "and system libraries")
      ->group(access);
  parser
      .add_option("--also-read", flags.also_read,
                  "files and directories that a confined server may read too, such as targets of "
                  "links in the model repository")
      ->group(access);
  parser.add_option("--try-loads", flags.try_loads,
                    "load a new version in a separate process first, so that a version that "
                    "crashes the engine does not end the server");
  parser
      .add_option("--load-timeout", flags.load_timeout_seconds,
                  "seconds that the first load of a version may take; 0: no limit")
      ->check(CLI::Range(0.0, 86400.0))
      ->check(app::finite_number());
  // The server starts its own probe with this flag; --help hides it.
  parser.add_option("--probe-load", flags.probe_load)->group("");

  const std::string models = "Defaults for models whose model.yaml does not set them";
  parser.add_option("--instances", flags.defaults.instances, "runs of a model at a time")
      ->check(CLI::Range(1u, 256u))
      ->group(models);
  parser
      .add_option("--threads", flags.defaults.threads, "threads of one run; 0: the engine's choice")
      ->check(CLI::Range(0u, 256u))
      ->group(models);
  parser
      .add_option("--memory-arena", arena,
                  "keep the memory of a run for the next run: faster, but memory stays at the peak")
      ->group(models);
  parser
      .add_option("--queue-max", flags.defaults.queue_max,
                  "requests waiting for a model; further ones are answered 429")
      ->check(app::whole_number())
      ->group(models);
  parser
      .add_option("--queue-bytes-max", flags.defaults.queue_bytes_max,
                  "bytes of the bodies of waiting requests")
      ->check(app::whole_number())
      ->group(models);
  parser
      .add_option("--queue-timeout-ms", queue_timeout_ms,
                  "longest wait for a model, then 504; 0: no limit")
      ->check(CLI::Range(0L, 86'400'000L))
      ->group(models);
  parser
      .add_option("--warmup-runs", flags.defaults.warmup_runs, "runs of a version before it serves")
      ->check(CLI::Range(0u, 1000u))
      ->group(models);

  parser.add_option("--log-format", flags.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Logs");
  parser.add_option("--log-level", flags.log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->group("Logs");
  try {
    app::parse_with_config(parser, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const CLI::ParseError& e) {
    return {std::nullopt, parser.exit(e, std::cout, std::cerr) == 0 ? 0 : 2};
  }
  if (!flags.grpc.empty()) {
    std::cerr
        << "--grpc: the gRPC API is not in this build; serve with --http and leave --grpc out\n";
    return {std::nullopt, 2};
  }
  if (flags.io_threads == 0)
    flags.io_threads = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  flags.defaults.memory_arena = arena;
  flags.defaults.queue_timeout = std::chrono::milliseconds(queue_timeout_ms);
  return {std::move(flags), 0};
}

}  // namespace varda::serve

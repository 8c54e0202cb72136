// join-token: manages the tokens with which nodes join at the gateway.
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/text.h"
#include "cli/printer.h"
#include "command.h"
#include "gateway/authority.h"
#include "gateway/join_secret.h"
#include "gateway/join_token.h"
#include "gateway/node_key.h"
#include "kube/client.h"
#include "meta/object.h"
#include "os/new_file.h"

namespace varda::app {
namespace {

constexpr std::chrono::seconds kTtlMin{60};
constexpr std::chrono::hours kTtlMax{24 * 30};

struct JoinTokenFlags {
  std::string node, layer, ttl = "24h", revoke, output, forget,
                           join_secret{gateway::kJoinSecretDefault};
  std::vector<std::string> from;
  bool list = false, rotate_shared = false, revoke_shared = false;
};

Result<std::vector<net::IpBlock>> networks_of(const std::vector<std::string>& texts) {
  std::vector<net::IpBlock> out;
  for (const std::string& text : texts) {
    const auto block = net::parse_ip_block(text);
    if (!block)
      return Error(Code::kInvalid,
                   "--from " + text +
                       ": must be a network such as 10.1.0.0/16 or fd00:1::/32, or an address");
    out.push_back(*block);
  }
  return out;
}

/// "90m", "24h", "7d".
Result<std::chrono::seconds> ttl_of(const std::string& text) {
  const Error wrong(
      Code::kInvalid,
      "--ttl " + text + ": must be a whole number followed by s, m, h or d, from 1m to 30d");
  const auto ttl = varda::parse_duration(text);
  if (!ttl || text.ends_with("ms")) return wrong;
  if (*ttl < kTtlMin || *ttl > kTtlMax) return wrong;
  return std::chrono::floor<std::chrono::seconds>(*ttl);
}

std::string state_of(const gateway::JoinTokenRecord& record, WallTime now) {
  if (record.revoked) return "revoked";
  if (record.expires <= now) return record.used_by.empty() ? "expired" : "used";
  return record.used_by.empty() ? "new" : "used";
}

Status list_tokens(const Context& ctx, const kube::Client& client,
                   const meta::ObjectKey& join_secret) {
  TRY(const auto records, gateway::list_join_tokens(ctx, client));
  const auto shared = gateway::find_shared_join_token(ctx, client, join_secret);
  const WallTime now = system_clock().wall();
  std::vector<std::vector<std::string>> rows = {
      {"ID", "NODE", "LAYER", "STATE", "EXPIRES", "FROM"}};
  for (const gateway::JoinTokenRecord& record : records) {
    rows.push_back({record.id, record.node, std::string(gateway::to_string(record.layer)),
                    state_of(record, now), meta::format_time(record.expires),
                    record.networks.empty() ? "anywhere" : gateway::text_of(record.networks)});
  }
  if (shared.ok() && *shared) {
    rows.push_back({(*shared)->token.id, "(agents of " + join_secret.ns + ")",
                    std::string(gateway::to_string(gateway::Layer::kEdge)),
                    (*shared)->revoked ? "revoked" : "shared", "never", "anywhere"});
  } else if (!shared.ok()) {
    std::fprintf(stderr, "%s\n", shared.error().message().c_str());
  }
  if (rows.size() == 1) {
    std::fputs("No join tokens.\n", stderr);
  } else {
    std::fputs(cli::align(rows).c_str(), stdout);
  }
  return {};
}

Status run(const Context& ctx, const Globals& globals, const JoinTokenFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kWarn));
  const int modes = (flags.node.empty() ? 0 : 1) + (flags.list ? 1 : 0) +
                    (flags.revoke.empty() ? 0 : 1) + (flags.forget.empty() ? 0 : 1) +
                    (flags.rotate_shared ? 1 : 0) + (flags.revoke_shared ? 1 : 0);
  if (modes != 1) {
    return Error(Code::kInvalid,
                 "join-token needs one of --node NAME, --list, --revoke ID, --forget NODE, "
                 "--rotate-shared and --revoke-shared");
  }
  if (!flags.output.empty() && flags.node.empty())
    return Error(Code::kInvalid, "--output goes with --node");
  if (!flags.layer.empty() && flags.node.empty())
    return Error(Code::kInvalid, "--layer goes with --node");
  if (!flags.from.empty() && flags.node.empty())
    return Error(Code::kInvalid, "--from goes with --node");
  TRY(const std::vector<net::IpBlock> networks, networks_of(flags.from));
  const auto layer = gateway::parse_layer(flags.layer.empty() ? "edge" : flags.layer);
  if (!layer)
    return Error(Code::kInvalid, "--layer " + flags.layer + ": must be edge, device or cloud");
  TRY(const kube::Config config, find_server(globals));
  const std::unique_ptr<kube::Client> client =
      kube::connect(config, {.field_manager = "varda-join-token"});
  TRY(const meta::ObjectKey join_secret,
      gateway::parse_join_secret(flags.join_secret).context("--join-secret"));
  if (flags.list) return list_tokens(ctx, *client, join_secret);
  if (!flags.revoke.empty()) {
    TRY_VOID(gateway::revoke_join_token(ctx, *client, flags.revoke));
    std::fprintf(stderr,
                 "join token %s is revoked; a node that has joined with it keeps its access\n",
                 flags.revoke.c_str());
    return {};
  }
  if (!flags.forget.empty()) {
    TRY_VOID(gateway::forget_node_key(ctx, *client, flags.forget));
    std::fprintf(stderr,
                 "node %s accepts the next key that enrols; the certificate of the former key is "
                 "not renewed, but stays valid "
                 "until it expires, unless it names another layer than edge\n",
                 flags.forget.c_str());
    return {};
  }
  if (flags.revoke_shared) {
    TRY_VOID(gateway::revoke_shared_join_token(ctx, *client, join_secret));
    std::fprintf(stderr,
                 "the token in Secret %s admits no node until `varda join-token --rotate-shared`; "
                 "enrolled nodes keep their access\n",
                 join_secret.str().c_str());
    return {};
  }
  TRY(const std::chrono::seconds ttl, ttl_of(flags.ttl));
  TRY(const std::string ca, gateway::published_ca(ctx, *client));
  TRY(const net::CertificateFacts facts,
      net::certificate_facts(ca).context("ConfigMap varda-system/varda-gateway"));
  if (flags.rotate_shared) {
    TRY_VOID(
        gateway::rotate_shared_join_token(ctx, *client, join_secret, facts.sha256, system_rng()));
    std::fprintf(stderr,
                 "Secret %s has a new token; the former token admits no node, enrolled nodes keep "
                 "their access\n",
                 join_secret.str().c_str());
    return {};
  }
  std::optional<os::NewFile> file;  // opened first: a token that cannot be saved is useless
  if (!flags.output.empty()) {
    TRY(os::NewFile created, os::NewFile::create(flags.output));
    file.emplace(std::move(created));
  }
  const WallTime now = system_clock().wall();
  (void)gateway::remove_old_join_tokens(ctx, *client, now);  // best effort: tokens of earlier days
  TRY(const gateway::JoinToken token, gateway::create_join_token(ctx, *client,
                                                                 {.node = flags.node,
                                                                  .layer = *layer,
                                                                  .networks = networks,
                                                                  .ttl = ttl,
                                                                  .ca_sha256 = facts.sha256},
                                                                 now, system_rng()));
  if (file) {
    TRY_VOID(file->write(token.text() + "\n"));
    TRY_VOID(file->keep());
  } else {
    std::fprintf(stdout, "%s\n", token.text().c_str());  // alone, for redirection to a file
  }
  const std::string place = *layer == gateway::Layer::kEdge
                                ? ""
                                : " in the layer " + std::string(gateway::to_string(*layer));
  const std::string source = networks.empty() ? "" : " from " + gateway::text_of(networks);
  std::fprintf(stderr,
               "node %s can join%s%s once with this token, until %s; `varda join-token --revoke "
               "%s` revokes it\n",
               flags.node.c_str(), place.c_str(), source.c_str(),
               meta::format_time(now + ttl).c_str(), token.id.c_str());
  return {};
}

}  // namespace

void add_join_token_command(Program program) {
  const auto flags = std::make_shared<JoinTokenFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* command = program.parser.add_subcommand(
      "join-token", "print a token that lets one node join through the gateway once");
  command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  command->add_option("--node", flags->node, "name of the node that may join with the token");
  command
      ->add_option("--layer", flags->layer,
                   "layer of the node: edge, device or cloud; pods of the cloud layer run on cloud "
                   "nodes only; default: edge")
      ->check(CLI::IsMember({"edge", "device", "cloud"}));
  command
      ->add_option("--from", flags->from,
                   "network (CIDR) or address of the node, as the gateway sees it (repeatable); "
                   "default: any")
      ->allow_extra_args(false);
  command->add_option(
      "--output,-o", flags->output,
      "write the token to this new file, readable by its owner only; default: standard output");
  command->add_option("--ttl", flags->ttl, "lifetime of the token: 90m, 24h, 7d")
      ->capture_default_str();
  command->add_flag("--list", flags->list, "list tokens with node, layer, state, end and networks");
  command->add_option("--revoke", flags->revoke, "ID: revoke this token");
  command->add_option("--forget", flags->forget,
                      "NODE: forget the node's key, so that an agent without the key (lost disk, "
                      "replaced machine) can enrol with "
                      "the shared token");
  command->add_flag("--rotate-shared", flags->rotate_shared,
                    "replace the shared token of agents, also after --revoke-shared");
  command->add_flag("--revoke-shared", flags->revoke_shared, "revoke the shared token of agents");
  command
      ->add_option("--join-secret", flags->join_secret,
                   "NAMESPACE/NAME of the Secret with the shared token of agents")
      ->capture_default_str();
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return run(ctx, globals, *flags); };
  });
}

}  // namespace varda::app

// node: removes nodes.
#include <cstdio>
#include <memory>
#include <string>

#include "command.h"
#include "gateway/node_removal.h"
#include "kube/client.h"

namespace varda::app {
namespace {

struct NodeRemoveFlags {
  std::string node;
  bool yes = false;
};

Status remove_one_node(const Context& ctx, const Globals& globals, const NodeRemoveFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kWarn));
  TRY(const kube::Config config, find_server(globals));
  const std::unique_ptr<kube::Client> client =
      kube::connect(config, {.field_manager = "varda-node"});
  const auto risk = flags.yes ? gateway::RemovalRisk::kAccepted : gateway::RemovalRisk::kNone;
  const auto removed = gateway::remove_node(ctx, *client, flags.node, risk);
  if (!removed.ok() && removed.error().code() == Code::kConflict && !flags.yes) {
    return Error(Code::kConflict, removed.error().message() +
                                      "; nothing was removed; --yes removes the node anyway");
  }
  TRY_VOID(removed);
  const struct {
    bool done;
    const char* what;
  } steps[] = {{removed->key, "key forgotten"},
               {removed->edge_node, "EdgeNode deleted"},
               {removed->lease, "Lease deleted"},
               {removed->node, "Node deleted"}};
  for (const auto& step : steps) {
    if (step.done) std::printf("node %s: %s\n", flags.node.c_str(), step.what);
  }
  if (!removed->pods.empty()) {
    std::fprintf(
        stderr, "%zu pod%s of the node stay%s: the controllers or `varda delete pod` remove them\n",
        removed->pods.size(), removed->pods.size() == 1 ? "" : "s",
        removed->pods.size() == 1 ? "s" : "");
  }
  if (removed->connected) {
    std::fprintf(
        stderr,
        "the agent of node %s was connected: if it still runs, it registers the node again\n",
        flags.node.c_str());
  }
  return {};
}

}  // namespace

void add_node_commands(Program program) {
  const auto flags = std::make_shared<NodeRemoveFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* node = program.parser.add_subcommand("node", "remove a node");
  node->require_subcommand(1);
  CLI::App* command =
      node->add_subcommand("remove", "forget a node's key and delete its Node, EdgeNode and Lease");
  command->add_option("node", flags->node, "name of the node; stop its agent first")->required();
  command->add_flag("--yes", flags->yes,
                    "also remove a node with bound pods, or a revoked node (edgeai.io/revoked)");
  command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) {
      return remove_one_node(ctx, globals, *flags);
    };
  });
}

}  // namespace varda::app

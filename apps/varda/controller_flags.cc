#include "controller_flags.h"

#include "model_key_file.h"
#include "servers_flag.h"

namespace varda::app {

namespace {
constexpr const char* kServerGroup = "Servers of models";
}

void add_controller_flags(CLI::App& command, ControllerFlags& flags) {
  const hosting::Options usual;
  command
      .add_option("--serve-image", flags.serve_image,
                  "image of varda-serve, for models of frameworkType onnx, pb, caffe and darknet")
      ->default_str(usual.servers.at("onnx").image)
      ->group(kServerGroup);
  command
      .add_option("--train-image", flags.train_image,
                  "image of varda-train, for TrainingModels with a trainer and for federated jobs")
      ->default_str(usual.train_image)
      ->group(kServerGroup);
  command
      .add_option("--aggregate-image", flags.aggregate_image,
                  "image of varda-aggregate, for FederatedLearningJobs")
      ->default_str(usual.aggregate_image)
      ->group(kServerGroup);
  command
      .add_option("--fetch-image", flags.fetch_image,
                  "image of varda, which fetches the models of the cloud layer")
      ->default_str(usual.fetch_image)
      ->group(kServerGroup);
  command
      .add_option("--edge-network", flags.edge_network,
                  "default network of pods in the edge layer: host (the node's network) or "
                  "hostport (one port of the node)")
      ->check(CLI::IsMember({"host", "hostport"}))
      ->default_str(usual.edge_network)
      ->group(kServerGroup);
  command
      .add_option("--model-keys", flags.model_keys,
                  "file with public keys, one on each line: only model versions that one of them "
                  "signed are fetched; read again when it changes; default: signatures are not "
                  "checked")
      ->group(kServerGroup);
  command
      .add_option(
          "--edge-authority", flags.edge_authority,
          "file with the certificate of the gateway's authority, which signs the identities "
          "of streams to federated jobs; default: the ConfigMap varda-system/varda-gateway, "
          "which gateways write")
      ->group(kServerGroup);
}

Result<hosting::Options> model_options(const ControllerFlags& flags,
                                       const std::filesystem::path& servers) {
  hosting::Options options;
  // An entry in the file wins over --serve-image.
  const std::string usual = options.servers.at("onnx").image;
  if (!servers.empty()) {
    TRY(options.servers, read_servers(servers).context("--servers"));
  }
  if (!flags.serve_image.empty()) {
    for (auto& [framework, entry] : options.servers)
      if (entry.image == usual) entry.image = flags.serve_image;
    options.serve_image = flags.serve_image;
  }
  if (!flags.train_image.empty()) options.train_image = flags.train_image;
  if (!flags.aggregate_image.empty()) options.aggregate_image = flags.aggregate_image;
  if (!flags.fetch_image.empty()) options.fetch_image = flags.fetch_image;
  if (!flags.edge_network.empty()) options.edge_network = flags.edge_network;
  if (!flags.model_keys.empty()) {
    TRY(options.model_keys, ModelKeyFile::open(flags.model_keys).context("--model-keys"));
  }
  return options;
}

}  // namespace varda::app

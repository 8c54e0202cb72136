// Address of the API server and the client's credentials: kubeconfig files, and the service account
// of a pod.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/client.h"
#include "net/proxy.h"
#include "net/tls.h"

namespace varda::kube {

struct Config {
  std::string server;  // "https://127.0.0.1:6443"
  net::TlsClient tls;
  std::string token;
  std::filesystem::path token_file;  // read again when it changes; overrides `token`
  std::string ns = "default";        // namespace of the context
  net::Proxies proxies;              // from the cluster's proxy-url, else from the environment
};

/// With `context` "", uses the file's current-context. Relative file names start at the directory
/// of the kubeconfig. kNotFound: no such file or context. kInvalid: names the wrong member.
/// kUnsupported: exec and auth-provider plug-ins.
Result<Config> load_kubeconfig(const std::filesystem::path& path, std::string_view context = "");
/// Parses the text. Relative paths start at `directory`. Ignores the environment.
Result<Config> parse_kubeconfig(std::string_view yaml, const std::filesystem::path& directory,
                                std::string_view context = "");

/// The service account of a pod: $KUBERNETES_SERVICE_HOST and _PORT, and the files below `root`.
/// kNotFound: not in a pod.
Result<Config> in_cluster(
    const std::filesystem::path& root = "/var/run/secrets/kubernetes.io/serviceaccount");

/// Finds the kubeconfig: the file `flag`, else the files of $KUBECONFIG, else `fallback`, else
/// in-cluster. $KUBECONFIG is a list of paths with ':' between them, merged as kubectl merges them.
/// Missing files are skipped. For entries with the same name, and for current-context, the first
/// one wins. kNotFound: the file `flag` is missing, every file of $KUBECONFIG is missing, or there
/// is no kubeconfig. The message lists the tried places and the remedy.
Result<Config> find_config(const std::filesystem::path& flag,
                           const std::filesystem::path& fallback);

/// A kubeconfig with one cluster, user and context named "varda"; PEM and token inline.
std::string write_kubeconfig(const Config& config);

/// A client with its own transport. Adds server and credentials to `options`. Detects a dead
/// connection within 10 s, also an idle one. Waits for an overloaded server, at most 10 times per
/// request.
std::unique_ptr<Client> connect(const Config& config, Client::Options options = {});

}  // namespace varda::kube

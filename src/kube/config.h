// Where the API server is and who we are there: kubeconfig files, and the service account of a pod.
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
  std::filesystem::path token_file;  // read again when it changes; wins over `token`
  std::string ns = "default";        // of the context
  net::Proxies proxies;              // of the cluster's proxy-url, else of the environment
};

/// `context` "" is the file's current-context. Files it names are relative to its own directory.
/// kNotFound: no such file or context. kInvalid: says which member is wrong. kUnsupported: exec and auth-provider plug-ins.
Result<Config> load_kubeconfig(const std::filesystem::path& path, std::string_view context = "");
/// From the text; `directory` is where relative paths start. The environment is not looked at.
Result<Config> parse_kubeconfig(std::string_view yaml, const std::filesystem::path& directory, std::string_view context = "");

/// The service account mounted into a pod: $KUBERNETES_SERVICE_HOST and _PORT, and the files below `root`. kNotFound: not in a pod.
Result<Config> in_cluster(const std::filesystem::path& root = "/var/run/secrets/kubernetes.io/serviceaccount");

/// Finds the kubeconfig: the one file `flag` if given, else the files of $KUBECONFIG where that names files, else `fallback`, else
/// in-cluster. $KUBECONFIG is a list of paths with ':' between them, merged as kubectl merges them: missing files are skipped, of
/// entries with one name the first counts, and so does the first current-context. kNotFound: the file `flag` or every file of
/// $KUBECONFIG is missing, or there is no kubeconfig; the message says what was tried and what to do.
Result<Config> find_config(const std::filesystem::path& flag, const std::filesystem::path& fallback);

/// A kubeconfig with one cluster, user and context named "varda"; PEM and token inline.
std::string write_kubeconfig(const Config& config);

/// A client with a transport of its own. `options` are completed with server and credentials. It finds a dead connection within
/// 10 s, also one that lies idle, and waits (up to 10 times a request) for a server that asks for it.
std::unique_ptr<Client> connect(const Config& config, Client::Options options = {});

}  // namespace varda::kube

// --edge-authority: the certificate of the authority that signs the identities of streams.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/context.h"
#include "base/mutex.h"
#include "base/result.h"
#include "kube/client.h"

namespace varda::app {

/// Follows a file, or the ConfigMap of gateway::published_ca(), on a thread of its own. Both may
/// appear later, and change. The last certificate stays when they are gone. Thread-safe.
class EdgeAuthority {
 public:
  /// `file` empty: the ConfigMap. kInvalid: the file exists and has no certificate. `client`
  /// outlives the result.
  static Result<std::unique_ptr<EdgeAuthority>> open(const std::filesystem::path& file,
                                                     const kube::Client& client);
  ~EdgeAuthority();

  /// "": not known yet.
  std::string pem() const EXCLUDES(mutex_);

 private:
  EdgeAuthority(std::filesystem::path file, const kube::Client& client)
      : file_(std::move(file)), client_(client) {}
  Result<std::string> read(const Context& ctx) const;
  void follow(const Context& ctx);

  const std::filesystem::path file_;
  const kube::Client& client_;
  mutable Mutex mutex_;
  std::string pem_ GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace varda::app

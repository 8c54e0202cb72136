// Environment and command line of a container: values, references to the pod and to configuration,
// and $(NAME).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "node/internal/record.h"

namespace varda::node::internal {

/// Source of ConfigMaps and Secrets: their decoded `data` by key.
class ConfigSource {
 public:
  enum class Kind { kConfigMap, kSecret };
  using Data = std::map<std::string, std::string>;
  virtual ~ConfigSource() = default;
  /// Errors as of Host: kNotFound, kUnavailable.
  virtual Result<Data> get(Kind kind, const std::string& name) = 0;
};

/// "$(NAME)" becomes the value, "$$(NAME)" the text "$(NAME)". Names without a value stay
/// unchanged.
std::string expand(const std::string& text, const std::map<std::string, std::string>& values);

/// The text of a fieldRef: "metadata.labels['app']", "status.podIP", "spec.nodeName" ...
/// kUnsupported: any other path.
Result<std::string> field_text(const PodRecord& record, const std::string& host_ip,
                               const std::string& path);

/// kNotFound, kUnsupported: the message names the variable and the problem.
Result<std::map<std::string, std::string>> make_environment(const PodRecord& record,
                                                            const std::string& host_ip,
                                                            const Json& container,
                                                            ConfigSource& source);

}  // namespace varda::node::internal

#include "servers_flag.h"

#include "codec/yaml.h"
#include "os/file_system.h"
#include "resolved_file.h"

namespace varda::app {

Result<hosting::ServerTable> read_servers(const std::filesystem::path& file) {
  TRY(const std::string text, os::read_file(os::real_file_system(), followed(file), 1u << 20));
  TRY(const codec::Json document, codec::parse_yaml(text).context(file.string()));
  if (!document.is_object() || !document.contains("servers") || document.size() != 1) {
    return Error(Code::kInvalid,
                 file.string() + ": expected one key, servers, with an entry for each framework");
  }
  return hosting::servers_from_json(document["servers"]).context(file.string());
}

}  // namespace varda::app

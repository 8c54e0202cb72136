#include "meta/node_address.h"

#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::meta {
namespace node_address_test {

TEST(NodeAddress, EachAddressHasTheExpectedScope) {
  const auto ordinary = AddressScope::kOrdinary, loopback = AddressScope::kLoopback,
             nowhere = AddressScope::kNowhere;
  const struct {
    const char* text;
    std::optional<AddressScope> scope;
  } cases[] = {{"10.0.0.7", ordinary},
               {"223.255.255.255", ordinary},
               {"2001:db8::1", ordinary},
               {"fc00::1", ordinary},
               {"127.0.0.1", loopback},
               {"127.255.0.9", loopback},
               {"::1", loopback},
               {"::ffff:127.0.0.1", loopback},
               {"0.0.0.0", nowhere},
               {"0.1.2.3", nowhere},
               {"169.254.169.254", nowhere},
               {"::ffff:169.254.169.254", nowhere},
               {"224.0.0.1", nowhere},
               {"239.255.255.255", nowhere},
               {"255.255.255.255", nowhere},
               {"240.0.0.1", nowhere},
               {"100.100.100.200", nowhere},
               {"168.63.129.16", nowhere},
               {"fd00:ec2::254", nowhere},
               {"64:ff9b::a9fe:a9fe", nowhere},
               {"64:ff9b::7f00:1", loopback},
               {"64:ff9b::a00:7", AddressScope::kOrdinary},
               {"::", nowhere},
               {"fe80::1", nowhere},
               {"ff02::1", nowhere},
               {"", std::nullopt},
               {"localhost", std::nullopt},
               {"127.1", std::nullopt},
               {"0x7f.0.0.1", std::nullopt},
               {"fe80::1%eth0", std::nullopt},
               {"10.0.0.7 ", std::nullopt}};
  for (const auto& one : cases) EXPECT_EQ(address_scope(one.text), one.scope) << one.text;
  EXPECT_EQ(address_scope(std::string_view("10.0.0.7\0x", 10)), std::nullopt);
}

TEST(NodeAddress, ReportedAddressesAreCheckedPerReporter) {
  const struct {
    const char *kind, *status;
    std::string same_machine, other_machine;  // fields with a problem, per reporter
  } cases[] = {
      {"Pod",
       "{podIP: 10.0.0.5, podIPs: [{ip: 10.0.0.5}], hostIP: 10.0.0.1, hostIPs: [{ip: "
       "'2001:db8::1'}]}",
       "", ""},
      {"Pod", "{podIP: '', hostIP: null, podIPs: []}", "", ""},
      {"Pod", "{podIP: 169.254.169.254, podIPs: [{ip: 10.0.0.1}, {ip: '::'}]}",
       "status.podIP status.podIPs[1].ip ", "status.podIP status.podIPs[1].ip "},
      {"Pod", "{podIP: 127.64.0.9, podIPs: [{ip: 127.127.255.254}]}", "", ""},
      {"Pod", "{podIP: 127.0.0.1, podIPs: [{ip: 127.0.255.1}, {ip: '::1'}]}", "",
       "status.podIP status.podIPs[0].ip status.podIPs[1].ip "},
      {"Pod", "{hostIP: 127.64.0.9, hostIPs: [{ip: '::1'}]}", "",
       "status.hostIP status.hostIPs[0].ip "},
      {"Pod", "{podIP: metadata.internal}", "status.podIP ", "status.podIP "},
      {"EdgeNode", "{address: 127.9.1.2}", "", "status.address "},
      {"EdgeNode", "{address: localhost}", "status.address ", "status.address "},
      {"EdgeNode", "{}", "", ""},
      {"Node",
       "{addresses: [{type: InternalIP, address: 127.9.1.2}, {type: Hostname, address: line7}]}",
       "", "status.addresses[0].address "},
      {"Node",
       "{addresses: [{type: Hostname, address: 169.254.1.1}, {type: ExternalIP, address: name}]}",
       "status.addresses[0].address status.addresses[1].address ",
       "status.addresses[0].address status.addresses[1].address "},
  };
  const auto fields = [](const std::vector<AddressProblem>& problems) {
    std::string out;
    for (const AddressProblem& one : problems) out += one.field + " ";
    return out;
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(std::string(one.kind) + " " + one.status);
    const codec::Json status = codec::parse_yaml(one.status).value();
    EXPECT_EQ(fields(address_problems(one.kind, status, Reporter::kThisMachine)), one.same_machine);
    EXPECT_EQ(fields(address_problems(one.kind, status, Reporter::kAnotherMachine)),
              one.other_machine);
  }
}

}  // namespace node_address_test
}  // namespace varda::meta

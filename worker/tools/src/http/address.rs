//! Which addresses may be called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::SetupError;

/// The IPv4 ranges outside the public internet: IANA's special-purpose registry, and multicast.
const SPECIAL_V4: &[(Ipv4Net, &str)] = &[
    (v4(0, 0, 0, 0, 8), "this network"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "carrier-grade NAT"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "protocol assignments"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 31, 196, 0, 24), "AS112"),
    (v4(192, 52, 193, 0, 24), "AMT"),
    (v4(192, 88, 99, 0, 24), "6to4 relay"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(192, 175, 48, 0, 24), "AS112"),
    (v4(198, 18, 0, 0, 15), "benchmarking"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// The IPv6 range allocated to the public internet.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);

/// The ranges inside [`GLOBAL_V6`] that are not public.
const SPECIAL_V6: &[(Ipv6Net, &str)] = &[
    (v6([0x2001, 0, 0], 23), "protocol assignments"),
    (v6([0x2001, 0x0db8, 0], 32), "documentation"),
    (v6([0x2002, 0, 0], 16), "6to4"),
    (v6([0x2620, 0x004f, 0x8000], 48), "AS112"),
    (v6([0x3fff, 0, 0], 20), "documentation"),
];

/// NAT64 addresses: their last four bytes are the IPv4 address that is reached.
const NAT64: Ipv6Net = v6([0x0064, 0xff9b, 0], 96);

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(start: [u16; 3], length: u8) -> Ipv6Net {
    let address = Ipv6Addr::new(start[0], start[1], start[2], 0, 0, 0, 0, 0);
    Ipv6Net::new_assert(address, length)
}

/// An address that must not be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its address is in a range that is not allowed ({range}); {setting} names those that are")]
pub(super) struct Refused {
    /// What the range is for.
    pub(super) range: &'static str,
    /// The setting that lists the private addresses that may be called.
    pub(super) setting: &'static str,
}

/// Which addresses may be called: public ones, and the private ones listed in the setting.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    allowed: Arc<[IpNet]>,
    setting: &'static str,
}

impl Addresses {
    /// Public addresses and those in `entries`, each a CIDR or an address, from `setting`.
    pub(super) fn allowing(entries: &[String], setting: &'static str) -> Result<Self, SetupError> {
        let parse = |entry: &String| {
            let text = entry.trim();
            let single = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>()
                .or_else(|_| single())
                .map_err(|_| SetupError::AllowPrivate {
                    entry: entry.clone(),
                })
        };
        let allowed: Result<Vec<_>, _> = entries.iter().map(parse).collect();
        Ok(Self {
            allowed: allowed?.into(),
            setting,
        })
    }

    /// Whether `address` may be called.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let reached = reached(address);
        match special(reached) {
            Some(range) if !self.allowed.iter().any(|net| net.contains(&reached)) => {
                let setting = self.setting;
                Err(Refused { range, setting })
            }
            _ => Ok(()),
        }
    }
}

/// The address that packets to `address` end at: some IPv6 addresses embed an IPv4 address.
fn reached(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if NAT64.contains(&v6) => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        other => other,
    }
}

/// The purpose of the non-public range that contains the address, if there is one.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => {
            let found = SPECIAL_V4.iter().find(|(net, _)| net.contains(&v4));
            found.map(|(_, range)| *range)
        }
        IpAddr::V6(v6) if GLOBAL_V6.contains(&v6) => {
            let found = SPECIAL_V6.iter().find(|(net, _)| net.contains(&v6));
            found.map(|(_, range)| *range)
        }
        IpAddr::V6(v6) if v6.is_loopback() => Some("loopback"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("link-local"),
        IpAddr::V6(v6) if v6.is_unique_local() => Some("private"),
        IpAddr::V6(v6) if v6.is_multicast() => Some("multicast"),
        IpAddr::V6(_) => Some("not global"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(allowed: &[&str], address: &str) -> Result<(), Refused> {
        let entries: Vec<String> = allowed.iter().map(|&entry| entry.to_owned()).collect();
        let addresses = Addresses::allowing(&entries, "setting").expect("they parse");
        addresses.check(address.parse().expect(address))
    }

    #[test]
    fn the_edges_of_every_special_range_are_refused_and_what_is_beside_them_is_not() {
        let inside = [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:0.0.0.0",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "1fff::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff:ffff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ];
        for address in inside {
            assert!(checked(&[], address).is_err(), "{address} passes");
        }
        let outside = [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2001:200::1",
            "2606:4700:4700::1111",
            "3ffe::1",
        ];
        for address in outside {
            assert_eq!(checked(&[], address), Ok(()), "{address}");
        }
    }

    #[test]
    fn what_is_named_is_allowed_and_nothing_beside_it() {
        let allowed = ["10.1.0.0/16", "127.0.0.1", "fd12::/64", " 192.168.7.0/24 "];
        for address in [
            "10.1.2.3",
            "127.0.0.1",
            "::ffff:10.1.0.0",
            "64:ff9b::a01:1",
            "fd12::7",
            "192.168.7.1",
        ] {
            assert_eq!(checked(&allowed, address), Ok(()), "{address}");
        }
        for address in [
            "10.2.0.0",
            "127.0.0.2",
            "::1",
            "fd12:0:0:1::7",
            "192.168.8.1",
        ] {
            assert!(checked(&allowed, address).is_err(), "{address} passes");
        }
    }

    #[test]
    fn an_entry_that_is_no_cidr_is_named() {
        for entry in [
            "",
            "10.0.0.0/33",
            "localhost",
            "10.0.0",
            "fe80::1%eth0",
            "*",
        ] {
            let refused = Addresses::allowing(&[entry.to_owned()], "setting").expect_err(entry);
            let entry = entry.to_owned();
            assert_eq!(refused, SetupError::AllowPrivate { entry });
        }
    }
}

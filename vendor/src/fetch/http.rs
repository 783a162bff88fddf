//! Downloads, with short patience for hosts that do not answer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use super::Failure;
use crate::error::Error;

pub(crate) struct Client {
    agent: Agent,
    /// With apt's proxy, for plain HTTP.
    apt_agent: Option<Agent>,
    dead: RefCell<BTreeMap<String, String>>,
}

impl Client {
    pub(crate) fn new() -> Self {
        let config = || {
            Agent::config_builder()
                .timeout_connect(Some(Duration::from_secs(6)))
                .timeout_resolve(Some(Duration::from_secs(6)))
                .timeout_send_request(Some(Duration::from_secs(10)))
                .timeout_recv_response(Some(Duration::from_secs(20)))
                // No bound on the whole body: a slow line is not a dead one.
                .user_agent(concat!(
                    "onnxruntime-training-src/",
                    env!("CARGO_PKG_VERSION")
                ))
                .tls_config(
                    TlsConfig::builder()
                        .root_certs(RootCerts::PlatformVerifier)
                        .build(),
                )
        };
        let apt_agent = super::apt::proxy()
            .and_then(|proxy| ureq::Proxy::new(&proxy).ok())
            .map(|proxy| config().proxy(Some(proxy)).build().into());
        Client {
            agent: config().build().into(),
            apt_agent,
            dead: RefCell::default(),
        }
    }

    /// Writes what `url` has into `file`.
    pub(crate) fn get(
        &self,
        url: &str,
        file: &mut File,
        progress: &dyn Fn(u64, Option<u64>),
    ) -> Result<(), Failure> {
        let host = host_of(url);
        if let Some(why) = self.dead.borrow().get(host) {
            return Err(Failure::Passed(why.clone()));
        }
        let agent = match &self.apt_agent {
            Some(agent) if url.starts_with("http://") => agent,
            _ => &self.agent,
        };
        let mut response = agent.get(url).call().map_err(|error| {
            // An answer with a status says that the host lives, and has not got this file.
            if let ureq::Error::StatusCode(status) = error {
                return Failure::Passed(format!("{host} answered {status}"));
            }
            let why = format!("{host}: {error}");
            self.dead.borrow_mut().insert(host.to_owned(), why.clone());
            Failure::Passed(why)
        })?;
        let total = response.body().content_length();
        let mut body = response.body_mut().with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0u8; 1 << 16];
        let mut done = 0;
        loop {
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) => {
                    return Err(Failure::Passed(format!(
                        "{host} broke off after {done} bytes: {error}"
                    )));
                }
            };
            file.write_all(&buffer[..n])
                .map_err(|error| Failure::Fatal(Error::io("writing a download")(error)))?;
            done += n as u64;
            progress(done, total);
        }
        match total {
            Some(total) if total != done => Err(Failure::Passed(format!(
                "{host} broke off after {done} of {total} bytes"
            ))),
            _ => Ok(()),
        }
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

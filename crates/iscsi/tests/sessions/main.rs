//! Whole sessions over an in-memory pipe. `proof/iscsi` tests with foreign clients.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod client;
mod hosts;

use std::time::Duration;

use cenote_disk::Ended;
use cenote_iscsi::pdu::{Bhs, Digests, FINAL, at, opcode};
use cenote_iscsi::{Account, Accounts, Luns, chap};
use cenote_runtime::{Runtime, SimConfig};
use tokio::io::AsyncWriteExt;

use client::{Client, IMMEDIATE, Server, TARGET, WRITES, good, pattern, sense, session, sessions};

#[test]
fn targets_are_found_with_the_addresses_to_reach_them() {
    let ended = session(&Server::new(Accounts::default()), async |mut client| {
        let text = ["InitiatorName=iqn.host", "SessionType=Discovery", "MaxRecvDataSegmentLength=512"];
        let (status, answer) = client.login(1, Some(3), &text).await.unwrap();
        assert_eq!((status, &answer[0][..]), (0, "MaxRecvDataSegmentLength=262144"));
        let bhs = Bhs::new(opcode::TEXT, FINAL).with(at::ITT, 7).with(at::TTT, u32::MAX).with(at::CMD_SN, 1);
        client.send(bhs, b"SendTargets=All\0").await;
        let (reply, text) = client.next().await.unwrap();
        assert_eq!((reply.opcode(), reply.itt()), (opcode::TEXT_RESPONSE, 7));
        let wanted =
            format!("TargetName={TARGET}\0TargetAddress=192.0.2.1:3260,1\0TargetAddress=192.0.2.2:3260,1\0");
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
        let bhs = Bhs::new(opcode::LOGOUT, FINAL).with(at::ITT, 8).with(at::CMD_SN, 2);
        client.send(bhs, b"").await;
        assert_eq!(client.next().await.unwrap().0.opcode(), opcode::LOGOUT_RESPONSE);
        assert!(client.next().await.is_none());
    });
    ended.unwrap();
}

#[test]
fn what_is_written_is_read_again() {
    let server = Server::new(Accounts::default());
    let ended = session(&server, async |mut client| {
        client
            .enter(&["MaxBurstLength=65536", "FirstBurstLength=16384", "MaxRecvDataSegmentLength=8192"])
            .await;
        let small = pattern(512);
        assert_eq!(client.write(3, &small, 512).await, good(b""), "immediate data");
        let large = pattern(200 * 1024);
        assert_eq!(client.write(20, &large, 4096).await, good(b""), "immediate data, then four bursts");
        assert_eq!(client.read(3, 1).await, good(&small));
        assert_eq!(client.read(20, 200).await, good(&large[..200 * 512]));
        let bad = client.read(13, 1).await;
        assert_eq!((bad.status, bad.sense, bad.residual), (2, sense(3, 0x1100), 512), "a block is bad");
        let beyond = client.ask(&[0x28, 0, 0xff, 0, 0, 0, 0, 0, 1, 0], 512, b"", 0).await;
        assert_eq!(beyond.sense, sense(5, 0x2100), "beyond the end");
        let more = client.ask(&[0x28, 0, 0, 0, 0, 3, 0, 0, 1, 0], 1000, b"", 0).await;
        assert_eq!((more.data.len(), more.residual), (512, 488), "more was expected than there is");
        // SYNCHRONIZE CACHE, and FUA.
        assert_eq!(client.ask(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, b"", 0).await, good(b""));
        assert_eq!(client.ask(&[0x2a, 8, 0, 0, 0, 3, 0, 0, 1, 0], 0, &small, 512).await, good(b""));
        assert_eq!(*server.disk.flushes.lock().unwrap(), 2);
        // COMPARE AND WRITE: old data, new data.
        let [old, new] = [pattern(512), vec![9; 512]];
        let swap = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0];
        assert_eq!(client.ask(&swap, 0, &[&old[..], &new].concat(), 1024).await, good(b""));
        let again = client.ask(&swap, 0, &[&old[..], &new].concat(), 1024).await;
        assert_eq!(again.sense, sense(14, 0x1d00), "it has changed");
        assert_eq!(client.read(3, 1).await, good(&new));
    });
    ended.unwrap();
}

#[test]
fn digests_are_checked_both_ways() {
    let server = Server::new(Accounts::default());
    let ended = session(&server, async |mut client| {
        let answer = client.enter(&["HeaderDigest=CRC32C,None", "DataDigest=CRC32C"]).await;
        assert!(
            answer.contains(&"HeaderDigest=CRC32C".into()) && answer.contains(&"DataDigest=CRC32C".into())
        );
        client.digests = Digests { header: true, data: true };
        let data = pattern(1024);
        assert_eq!(client.write(0, &data, 1024).await, good(b""));
        assert_eq!(client.read(0, 2).await, good(&data));
        // A single wrong bit prevents the whole write.
        let mut bhs = Bhs::new(opcode::SCSI_COMMAND, FINAL | WRITES)
            .with(at::ITT, 99)
            .with(at::EXPECTED_BYTES, 512)
            .with(at::CMD_SN, client.cmd_sn)
            .with_data_bytes(512);
        bhs.0[at::CDB] = 0x2a;
        bhs.0[at::CDB + 8] = 1;
        let sum = crc32c::crc32c(&bhs.0).to_le_bytes();
        client.stream.write_all(&[&bhs.0[..], &sum, &[7; 512], &[1; 4]].concat()).await.unwrap();
        assert!(client.next().await.is_none(), "the connection ends");
    });
    assert!(matches!(ended, Err(Ended::Protocol(why)) if why.contains("digest of data")));
    assert_eq!(server.disk.content.lock().unwrap()[..1024], pattern(1024));
}

fn accounts() -> Accounts {
    let account = |user: &str, secret: &str, names: &[&str]| {
        let names = names.iter().map(|&name| name.into()).collect();
        Account { user: user.into(), secret: secret.into(), names }
    };
    let initiators = vec![
        account("host", "a secret of hosts", &[]),
        account("another", "another host's secret", &[]),
        account("narrow", "a secret of one name", &["iqn.narrow"]),
    ];
    Accounts { initiators, target: Some(account("storage", "a secret of ours", &[])) }
}

/// Logs in with CHAP. Returns the status, and whether the target proved its own secret.
async fn chap_login(client: &mut Client, user: &str, secret: &str) -> (u16, bool) {
    let target = format!("TargetName={TARGET}");
    let first = ["InitiatorName=iqn.host", &target, "AuthMethod=CHAP,None"];
    let (status, answer) = client.login(0, None, &first).await.unwrap();
    assert!(status == 0 && answer.contains(&"AuthMethod=CHAP".into()));
    let (_, asked) = client.login(0, None, &["CHAP_A=7,5"]).await.unwrap();
    let value = |pairs: &[String], key: &str| {
        pairs.iter().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    assert_eq!(value(&asked, "CHAP_A").unwrap(), "7");
    let (id, challenge) = (value(&asked, "CHAP_I").unwrap(), value(&asked, "CHAP_C").unwrap());
    let sha = chap::Algorithm::Sha256;
    let response = sha.response(id.parse().unwrap(), secret, &chap::binary(&challenge).unwrap());
    let response = format!("CHAP_R={}", chap::hex(&response));
    let name = format!("CHAP_N={user}");
    let second = [&*name, &response, "CHAP_I=5", "CHAP_C=0x0102030405060708"];
    let (status, answer) = client.login(0, Some(3), &second).await.unwrap();
    let wanted = chap::hex(&sha.response(5, "a secret of ours", &[1, 2, 3, 4, 5, 6, 7, 8]));
    (
        status,
        value(&answer, "CHAP_R") == Some(wanted) && value(&answer, "CHAP_N").as_deref() == Some("storage"),
    )
}

#[test]
fn who_does_not_know_the_secret_is_not_let_in() {
    let server = Server::new(accounts());
    session(&server, async |mut client| {
        assert_eq!(chap_login(&mut client, "host", "a secret of hosts").await, (0, true));
        assert_eq!(client.read(0, 1).await.status, 0);
    })
    .unwrap();
    for (user, secret) in
        [("host", "a wrong secret"), ("other", "a secret of hosts"), ("storage", "a secret of ours")]
    {
        session(&server, async |mut client| {
            assert_eq!(chap_login(&mut client, user, secret).await, (0x0201, false));
            assert!(client.next().await.is_none());
        })
        .unwrap();
    }
    // Nor an initiator that skips CHAP.
    let target = format!("TargetName={TARGET}");
    for (stage, more) in [(1, "HeaderDigest=None"), (0, "AuthMethod=None"), (0, "CHAP_N=host")] {
        session(&server, async |mut client| {
            let text = ["InitiatorName=iqn.host", &*target, more];
            let (status, answer) = client.login(stage, Some(3), &text).await.unwrap();
            assert!(status >= 0x0200 && answer.is_empty(), "{status:x} {answer:?}");
        })
        .unwrap();
    }
}

#[test]
fn an_answer_to_a_challenge_is_good_once() {
    let ended = sessions(&Server::new(accounts()), async |clients: [Client; 2]| {
        let mut answers = Vec::new();
        for mut client in clients {
            let first = ["InitiatorName=iqn.host", &format!("TargetName={TARGET}"), "AuthMethod=CHAP"];
            client.login(0, None, &first).await.unwrap();
            let (_, asked) = client.login(0, None, &["CHAP_A=7"]).await.unwrap();
            let value = |key: &str| asked.iter().find_map(|pair| pair.strip_prefix(key)).unwrap().to_owned();
            let challenge = chap::binary(&value("CHAP_C=")).unwrap();
            let id = value("CHAP_I=").parse().unwrap();
            answers.push(chap::Algorithm::Sha256.response(id, "a secret of hosts", &challenge));
            // Replays the response of the first login in the second.
            let response = format!("CHAP_R={}", chap::hex(&answers[0]));
            let (status, _) = client.login(0, Some(3), &["CHAP_N=host", &response]).await.unwrap();
            assert_eq!(status, if answers.len() == 1 { 0 } else { 0x0201 });
        }
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn who_does_not_send_data_that_was_asked_for_is_disconnected() {
    let ended = session(&Server::new(Accounts::default()), async |mut client| {
        client.enter(&["InitialR2T=Yes", "ImmediateData=No"]).await;
        let mut write = Bhs::new(opcode::SCSI_COMMAND, FINAL | WRITES)
            .with(at::ITT, 1)
            .with(at::EXPECTED_BYTES, 4096)
            .with(at::CMD_SN, client.cmd_sn);
        write.0[at::CDB..][..10].copy_from_slice(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        client.send(write, b"").await;
        assert_eq!(client.next().await.unwrap().0.opcode(), opcode::R2T);
        while client.next().await.is_some() {}
    });
    assert!(matches!(ended, Err(Ended::Stalled)), "{ended:?}");
}

#[test]
fn who_has_to_go_is_asked_to_log_out() {
    let mut server = Server::new(Accounts::default());
    server.leaves_after = Some(Duration::from_secs(9));
    for logs_out in [true, false] {
        session(&server, async |mut client| {
            client.enter(&[]).await;
            let (asked, _) = client.next().await.unwrap();
            assert_eq!((asked.opcode(), asked.0[36], asked.0[43]), (opcode::ASYNC, 1, 3));
            assert_eq!(client.read(0, 1).await.status, 0, "it is served until then");
            if logs_out {
                let logout = Bhs::new(opcode::LOGOUT | IMMEDIATE, FINAL).with(at::CMD_SN, client.cmd_sn);
                client.send(logout, b"").await;
                assert_eq!(client.next().await.unwrap().0.opcode(), opcode::LOGOUT_RESPONSE);
            }
            assert!(client.next().await.is_none());
        })
        .unwrap();
    }
}

#[test]
fn who_finds_no_room_is_told_so() {
    let (here, there) = tokio::io::duplex(1 << 16);
    let mut client = Client { stream: here, digests: Digests::default(), cmd_sn: 1, itt: 0, lun: 0 };
    let work = |_| async move {
        futures::join!(cenote_iscsi::turn_away(Box::new(there)), async {
            let (status, _) = client.login(0, Some(1), &["InitiatorName=iqn.host"]).await.unwrap();
            assert_eq!(status, 0x0302, "out of resources");
            assert!(client.next().await.is_none());
        })
        .0
    };
    Runtime::simulate(SimConfig::default(), work).0.unwrap();
}

#[test]
fn a_session_is_taken_over_by_its_own_account_only() {
    let server = Server::new(accounts());
    let ended = sessions(&server, async |[mut first, mut other, mut narrow, mut again]| {
        assert_eq!(chap_login(&mut first, "host", "a secret of hosts").await, (0, true));
        assert_eq!(chap_login(&mut other, "another", "another host's secret").await, (0x0202, false));
        assert_eq!(chap_login(&mut narrow, "narrow", "a secret of one name").await, (0x0202, false));
        assert_eq!(first.read(0, 1).await.status, 0, "it goes on");
        // The host reconnects after losing its connection.
        assert_eq!(chap_login(&mut again, "host", "a secret of hosts").await, (0, true));
        assert!(first.next().await.is_none());
        assert_eq!(again.read(0, 1).await.status, 0);
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn a_target_has_several_units() {
    let server = Server::new(Accounts::default());
    session(&server, async |mut client| {
        client.enter(&[]).await;
        let report = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let wanted = [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0];
        for lun in [0, 7, 5] {
            client.lun = lun;
            assert_eq!(client.ask(&report, 256, b"", 0).await.data, wanted, "as seen by unit {lun}");
        }
        assert_eq!(client.read(0, 1).await.sense, sense(5, 0x2500), "there is no unit 5");
        for (lun, disk) in [(0, &server.disk), (7, &server.other)] {
            client.lun = lun;
            let data = vec![lun + 1; 512];
            assert_eq!(client.write(0, &data, 512).await, good(b""));
            assert_eq!(disk.content.lock().unwrap()[..512], data);
        }
        // Resetting one unit causes no attention on the other.
        let reset = Bhs::new(opcode::TASK_MANAGEMENT | IMMEDIATE, FINAL | 5).with(at::CMD_SN, client.cmd_sn);
        client.send(reset.with(at::LUN, 7 << 16), b"").await;
        assert_eq!(client.next().await.unwrap().0.0[2], 0);
        assert_eq!(client.read(0, 1).await.sense, sense(6, 0x2903));
        client.lun = 0;
        assert_eq!(client.read(0, 1).await, good(&[1; 512]));
    })
    .unwrap();
}

#[test]
fn a_command_that_another_initiator_aborts_is_answered() {
    let server = Server::new(Accounts::default());
    let ended = sessions(&server, async |[mut other, mut client]| {
        let target = format!("TargetName={TARGET}");
        other.login(1, Some(3), &["InitiatorName=iqn.other", &target, "InitialR2T=Yes"]).await.unwrap();
        client.enter(&[]).await;
        // TAS in the control mode page says so.
        let page = client.ask(&[0x1a, 8, 0x0a, 0, 255, 0], 255, b"", 0).await.data;
        assert_eq!(page[4 + 5], 0x40);
        let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 16, 0];
        let mut command = Bhs::new(opcode::SCSI_COMMAND, FINAL | 0x20).with(at::ITT, 77);
        command.0[at::CDB..at::CDB + 10].copy_from_slice(&write);
        let command = command.with(at::EXPECTED_BYTES, 16 * 512).with(at::CMD_SN, other.cmd_sn);
        other.cmd_sn += 1;
        other.send(command, b"").await;
        assert_eq!(other.next().await.unwrap().0.opcode(), opcode::R2T, "the data is awaited");
        let reset = Bhs::new(opcode::TASK_MANAGEMENT | IMMEDIATE, FINAL | 5).with(at::CMD_SN, client.cmd_sn);
        client.send(reset, b"").await;
        assert_eq!(client.next().await.unwrap().0.0[2], 0);
        let (reply, _) = other.next().await.unwrap();
        assert_eq!((reply.opcode(), reply.itt(), reply.0[3]), (opcode::SCSI_RESPONSE, 77, 0x40));
        // News of the reset follow, and then all is as before.
        assert_eq!(other.read(0, 1).await.sense, sense(6, 0x2903));
        assert_eq!(other.read(0, 1).await, good(&[0; 512]));
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn a_cold_reset_is_answered_before_all_sessions_end() {
    let server = Server::new(Accounts::default());
    let ended = sessions(&server, async |[mut other, mut client]| {
        let target = format!("TargetName={TARGET}");
        other.login(1, Some(3), &["InitiatorName=iqn.other", &target]).await.unwrap();
        client.enter(&[]).await;
        let reset = Bhs::new(opcode::TASK_MANAGEMENT | IMMEDIATE, FINAL | 7).with(at::CMD_SN, client.cmd_sn);
        client.send(reset, b"").await;
        let (reply, _) = client.next().await.unwrap();
        assert_eq!((reply.opcode(), reply.0[2]), (opcode::TASK_MANAGEMENT_RESPONSE, 0));
        assert!(client.next().await.is_none() && other.next().await.is_none());
    });
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

#[test]
fn reservations_outlive_the_server_and_exclude_others() {
    const REGISTER: [u8; 10] = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    const RESERVE: [u8; 10] = [0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0];
    let server = Server::new(Accounts::default());
    session(&server, async |mut client| {
        client.enter(&[]).await;
        let mut list = [0; 24];
        (list[15], list[20]) = (42, 1);
        assert_eq!(client.ask(&REGISTER, 0, &list, 24).await, good(b""));
        (list[7], list[15], list[20]) = (42, 0, 0);
        assert_eq!(client.ask(&RESERVE, 0, &list, 24).await, good(b""));
        assert_eq!(client.write(0, &pattern(512), 512).await, good(b""));
    })
    .unwrap();
    // After a server restart, another host connects.
    let server = Server { luns: Luns::default(), ..server };
    session(&server, async |mut client| {
        let target = format!("TargetName={TARGET}");
        client.login(1, Some(3), &["InitiatorName=iqn.other", &target]).await.unwrap();
        assert_eq!(client.write(0, &pattern(512), 512).await.status, 0x18, "RESERVATION CONFLICT");
        assert_eq!(client.read(0, 1).await, good(&pattern(512)), "it is exclusive for writing only");
    })
    .unwrap();
}

#[test]
fn names_of_initiators_are_names() {
    for name in ["iqn.host\niqn.other", "iqn.a b", "host", "iqn.", "eui.\u{7}"] {
        let server = Server::new(Accounts::default());
        session(&server, async |mut client| {
            let (name, target) = (format!("InitiatorName={name}"), format!("TargetName={TARGET}"));
            let (status, _) = client.login(1, Some(3), &[&name, &target]).await.unwrap();
            assert_eq!(status, 0x0200, "{name:?}: initiator error");
        })
        .unwrap();
    }
}

#[test]
fn a_disk_whose_kept_reservations_are_damaged_is_not_served() {
    let server = Server::new(Accounts::default());
    *server.disk.kept.lock().unwrap() = Some("v2 00000000\n5\n1 00023d000009 1 iqn.a".into());
    session(&server, async |mut client| {
        let target = format!("TargetName={TARGET}");
        let (status, _) = client.login(1, Some(3), &["InitiatorName=iqn.host", &target]).await.unwrap();
        assert_eq!(status, 0x0300, "target error");
    })
    .unwrap();
}

#[test]
fn hostile_messages_end_the_connection_and_nothing_else() {
    let command = |itt: u32, number: u32| {
        Bhs::new(opcode::SCSI_COMMAND, FINAL).with(at::ITT, itt).with(at::CMD_SN, number)
    };
    let data_out = Bhs::new(opcode::DATA_OUT, FINAL).with(at::ITT, 77).with(at::OFFSET, 1 << 30);
    let cases: &[(&str, Vec<Bhs>, bool)] = &[
        ("16 MiB in one message", vec![command(1, 1).with_data_bytes(0xff_ffff)], false),
        ("data without a command", vec![data_out], true),
        ("a command is left out", vec![command(1, 2)], false),
        ("a command from the past", vec![command(1, 0)], true),
        ("unknown opcodes", vec![Bhs::new(0x1f, FINAL).with(at::CMD_SN, 1), Bhs::new(0x3f, 0)], true),
        ("a command without flags", vec![Bhs::new(opcode::SCSI_COMMAND, 0).with(at::CMD_SN, 1)], false),
        ("much at once", vec![Bhs::new(opcode::NOP_OUT | IMMEDIATE, FINAL); 200], false),
        ("a second login", vec![Bhs::new(opcode::LOGIN | IMMEDIATE, FINAL)], true),
    ];
    for (what, messages, survives) in cases {
        let ended = session(&Server::new(Accounts::default()), async |mut client| {
            client.enter(&[]).await;
            for message in messages {
                client.stream.write_all(&message.0).await.ok();
            }
            client.stream.shutdown().await.ok();
            while client.next().await.is_some() {}
        });
        assert_eq!(ended.is_ok(), *survives, "{what}: {ended:?}");
    }
    for text in
        ["InitiatorName", "=", "\0\0", "InitiatorName=\0", "SessionType=Normal\0", "\u{fffd}=\u{fffd}"]
    {
        let ended = session(&Server::new(Accounts::default()), async |mut client| {
            let answer = client.login(1, Some(3), &[text]).await;
            assert!(answer.is_none_or(|(status, _)| status != 0), "{text:?}");
        });
        ended.unwrap();
    }
    let ended = session(&Server::new(Accounts::default()), async |mut client| {
        client.stream.write_all(&[0x43, 0x87, 0, 0, 0, 0, 0, 9]).await.unwrap();
        assert!(client.next().await.is_none());
    });
    assert!(matches!(ended, Err(Ended::Stalled)), "half a login: {ended:?}");
}
